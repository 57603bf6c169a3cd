import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from infra.supervise.memory import MemoryWatch, held_bytes

MIB = 1024**2
HOARD = """
import mmap, os, sys
anonymous = bytearray(60 << 20)
anonymous[::4096] = b"x" * len(anonymous[::4096])
shared = mmap.mmap(-1, 30 << 20)
shared.write(b"x" * (30 << 20))
if os.fork() == 0:
    sum(shared[:: 4096])
print(flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured through /proc")


@pytest.fixture
def group() -> Iterator[int]:
    """A group of two processes, one of which holds 60 MiB, and both the same 30."""
    with subprocess.Popen(
        [sys.executable, "-c", HOARD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def test_a_group_holds_what_its_processes_hold_and_shared_memory_once(group: int):
    held = held_bytes([group])
    assert 90 * MIB <= held < 90 * MIB + 2 * 40 * MIB  # two interpreters of some 10 MiB, and pages that the fork copied
    assert held_bytes([]) == 0


def test_too_much_is_told_in_one_sentence_that_names_the_knob(group: int):
    now_s = time.monotonic()
    modest, large = MemoryWatch([group], 50 * MIB, now_s), MemoryWatch([group], 4096 * MIB, now_s)
    later_s = modest.next_look_s
    assert later_s > now_s
    assert modest.excess(now_s) is None, "a short job pays nothing"
    excess = modest.excess(later_s)
    assert excess is not None
    assert "resources.memory_bytes allows 0.05 GiB" in excess
    assert large.excess(later_s) is None
    assert large.next_look_s > later_s
