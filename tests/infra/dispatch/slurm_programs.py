"""A program that meets the test at a gate and says what Slurm and its supervisor told it, and submitters that are killed.

`python -m tests.infra.dispatch.slurm_programs MOMENT CONFIG STATE JOB UID`: submit, and be killed around sbatch.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from infra.artifacts.config import ProgramConfig, execution_only
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from infra.dispatch.engines.slurm.backend import SlurmBackend
from infra.dispatch.engines.slurm.commands import Commands
from infra.dispatch.engines.slurm.config import SlurmConfig
from infra.dispatch.job import Attempt, Job

TOLD = ("SEAWAY_RANK", "SEAWAY_RANKS", "SEAWAY_LOCAL_RANK", "SEAWAY_HOST_ADDRESS", "CUDA_VISIBLE_DEVICES")
OF_SLURM = ("SLURMD_NODENAME", "SLURM_NODEID", "SLURM_JOB_ID", "SLURM_JOB_GPUS")


class MeetConfig(ProgramConfig):
    """Where to meet."""

    words: str = "met"
    gate: str | None = execution_only(None)  # each rank leaves `rank-R-of-slurm-job-J` here and waits for `open`


class MeetStats(Stats):
    ranks: int


@program(version="1")
def meet(config: MeetConfig, out: Writer) -> MeetStats:
    """Say who this rank is, wait at the gate, and write the words (rank 0)."""
    told = {name: os.environ.get(name) for name in (*TOLD, *OF_SLURM)} | {"pid": os.getpid()}
    rank = int(told["SEAWAY_RANK"] or 0)
    if config.gate is not None:
        gate = Path(config.gate)
        (gate / f".{rank}").write_text(json.dumps(told))
        (gate / f".{rank}").replace(gate / f"rank-{rank}-of-slurm-job-{told['SLURM_JOB_ID']}")
        while not (gate / "open").exists():
            time.sleep(0.02)
    out.progress(1, 1, "meetings")
    if rank == 0:
        with out.open("words.txt") as stream:
            stream.write(config.words.encode())
    return MeetStats(ranks=int(told["SEAWAY_RANKS"] or 1))


def submit_and_die(moment: str, config: SlurmConfig, state: Path, job: Job, attempt: Attempt) -> None:
    """Submit the attempt, and be killed `before` or `after` sbatch."""
    submit = Commands.submit

    def submit_around(self: Commands, *arguments: object) -> None:
        if moment == "after":
            submit(self, *arguments)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGKILL)

    Commands.submit = submit_around  # type: ignore[assignment, method-assign]
    SlurmBackend(config, state).submit_or_attach(job, attempt)


if __name__ == "__main__":
    moment, config, state, job, uid = sys.argv[1:]
    submit_and_die(moment, SlurmConfig.model_validate_json(config), Path(state), Job.model_validate_json(job), Attempt(1, uid))
