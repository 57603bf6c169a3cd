"""`python -m tests.ops.dataflow.drive STAGE DIRECTORY WORKERS DEATHS`: one attempt in a process that may die."""

import os
import pickle
import sys
from pathlib import Path

from ops.dataflow.config import Execution
from tests.ops.dataflow.stages import Death, MeasureTexts, SumGroups, measure_all, sum_all


def main(stage: str, directory: Path, workers: int) -> None:
    os.environ["DRIVER_PID"] = str(os.getpid())
    shards, deaths = pickle.loads((directory / "given").read_bytes())
    journal, attempt = str(directory / "journal"), f"attempt-{os.getpid()}"
    execution = Execution(workers=workers)
    if stage == "measure":
        out, _ = measure_all(directory, shards, MeasureTexts(journal, deaths), execution, attempt)
    else:
        out, _ = sum_all(directory, shards, SumGroups(journal, deaths), execution, attempt, buckets=len(shards))
    (directory / "files").write_bytes(pickle.dumps(out.files))


def give(directory: Path, shards: object, deaths: tuple[Death, ...]) -> None:
    """What every attempt in this directory works on."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "given").write_bytes(pickle.dumps((shards, deaths)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
