"""A program whose ranks meet the test at a gate and say what Ray and their supervisor told them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from infra.artifacts.config import ProgramConfig, execution_only
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer

TOLD = ("SEAWAY_RANK", "SEAWAY_RANKS", "SEAWAY_LOCAL_RANK", "SEAWAY_HOST_ADDRESS", "SEAWAY_ATTEMPT_DIRECTORY")


class MeetConfig(ProgramConfig):
    """Where to meet."""

    words: str = "met"
    gate: str | None = execution_only(None)  # each rank leaves `rank-R-of-attempt-N` here and waits for `open`
    children: int = execution_only(0)  # processes that sleep beside the work and are never ended


class MeetStats(Stats):
    ranks: int


@program(version="1")
def meet(config: MeetConfig, out: Writer) -> MeetStats:
    """Say who this rank is, wait at the gate, and write the words (rank 0)."""
    told = {name: os.environ.get(name, "") for name in TOLD} | {"pid": os.getpid()}
    for _ in range(config.children):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).returncode = 0  # disowned
    rank, number = int(os.environ["SEAWAY_RANK"]), int(os.environ["SEAWAY_ATTEMPT_DIRECTORY"].rpartition("/")[2])
    if config.gate is not None:
        gate = Path(config.gate)
        (gate / f".{rank}").write_text(json.dumps(told))
        (gate / f".{rank}").replace(gate / f"rank-{rank}-of-attempt-{number}")
        while not (gate / "open").exists():
            time.sleep(0.02)
    out.progress(1, 1, "meetings")
    if rank == 0:
        with out.open("words.txt") as stream:
            stream.write(config.words.encode())
    return MeetStats(ranks=int(os.environ["SEAWAY_RANKS"]))
