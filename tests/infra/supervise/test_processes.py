import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from infra.supervise.processes import Group, start_of
from tests.infra.dispatch.builders import wait_for

FAMILY = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
sys.stdin.read()
os._exit(0)
"""


@dataclasses.dataclass
class Family:
    """A group leader and one child of it."""

    leader: subprocess.Popen[str]
    child: int
    group: Group


@pytest.fixture
def family() -> Iterator[Family]:
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        group = Group.led_by(leader.pid)
        yield Family(leader, child, group)
        group.kill()


def test_a_group_knows_its_members(family: Family):
    assert sorted(family.group.members()) == sorted([family.leader.pid, family.child])


def test_a_group_whose_leader_is_dead_can_still_be_killed(family: Family):
    family.leader.kill()
    family.leader.wait()
    assert family.group.members() == [family.child]
    assert family.group.kill()
    assert family.group.members() == []


@pytest.mark.parametrize("change", [{"started": 1.0}, {"session": 1}])
def test_a_stranger_with_the_same_number_is_left_alone(family: Family, change: dict[str, float]):
    stranger = dataclasses.replace(family.group, **change)
    assert stranger.members() == []
    assert stranger.kill(deadline_s=0.1)
    assert family.leader.poll() is None


def test_a_stopped_member_dies_too(family: Family):
    os.kill(family.child, signal.SIGSTOP)
    assert family.group.kill()


def test_a_start_time_is_stable_and_ends_with_the_process(family: Family):
    assert start_of(family.leader.pid) == start_of(family.leader.pid)
    family.leader.kill()
    family.leader.wait()
    with pytest.raises(ProcessLookupError):
        start_of(family.leader.pid)


def test_a_worker_dies_with_its_supervisor_even_before_it_asked():
    orphan = "from infra.supervise.processes import die_with_parent; die_with_parent(); import time; time.sleep(600)"
    parent = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], env={**os.environ, 'SEAWAY_SUPERVISOR_PID': str(os.getpid())})\n"
        "print(child.pid, flush=True)\n"
        "os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", parent, orphan], stdout=subprocess.PIPE, text=True, check=True)
    child = int(done.stdout)
    wait_for(lambda: not _lives(child), "the orphan dies")


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
