"""The cap is the kernel's, and no program over documents is left out of the memory runs."""

import subprocess
import sys

import pytest

from ops.units import MiB
from tests.ops.dataflow import programs
from tests.ops.memory.cap import NoCapError, capped
from tests.ops.memory.stages import STAGES

HOLD = "import sys; held = b'x' * int(sys.argv[1]); print(len(held))"


def test_who_holds_more_than_the_cap_is_killed_and_who_holds_less_is_not() -> None:
    try:
        with capped(64 * MiB) as cap:
            codes = [
                subprocess.run([sys.executable, "-c", HOLD, str(mib * MiB)], stdout=subprocess.DEVNULL, preexec_fn=cap.enter).returncode
                for mib in (16, 256)
            ]
    except NoCapError as error:
        pytest.skip(str(error))
    assert codes == [0, -9]
    assert not cap.group.exists()


def test_every_program_over_documents_is_held_to_the_cap() -> None:
    assert set(programs.STAGES) <= set(STAGES)
