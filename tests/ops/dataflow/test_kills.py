"""Whatever dies at whatever shard: the same bytes, and nothing committed is done again."""

import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from infra.artifacts.manifest import FileEntry
from ops.dataflow.config import Execution
from ops.dataflow.shard import Shard
from tests.ops.dataflow.drive import give
from tests.ops.dataflow.stages import Death, MeasureTexts, SumGroups, begun, input_of, measure_all, rows_table, sum_all

pytestmark = pytest.mark.faults

SHARDS = 5


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shard, ...]:
    return input_of(tmp_path_factory.mktemp("given"), [rows_table(150, seed) for seed in range(SHARDS)])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, shards: tuple[Shard, ...]) -> dict[str, tuple[FileEntry, ...]]:
    directory = tmp_path_factory.mktemp("undisturbed")
    journal = str(directory / "journal")
    return {
        "measure": measure_all(directory, shards, MeasureTexts(journal), Execution())[0].files,
        "sum": sum_all(directory, shards, SumGroups(journal), Execution(), "b", buckets=SHARDS)[0].files,
    }


def attempt(stage: str, directory: Path, workers: int) -> int:
    """One attempt in a process; its exit code."""
    command = [sys.executable, "-m", "tests.ops.dataflow.drive", stage, str(directory), str(workers)]
    return subprocess.run(command, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode


def lives(pid: int) -> bool:
    """Whether a process runs: a dead one keeps its number until the machine's first process has asked how it ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("stage", ["measure", "sum"])
def test_a_driver_killed_at_every_shard_boundary_goes_on_where_it_was(
    tmp_path: Path, shards: tuple[Shard, ...], undisturbed: dict[str, tuple[FileEntry, ...]], stage: str
) -> None:
    give(tmp_path, shards, tuple(Death("driver", index, str(tmp_path / f"death-{index}")) for index in range(SHARDS)))
    codes = []
    while not (tmp_path / "files").exists():
        codes.append(attempt(stage, tmp_path, 1))
        assert len(codes) <= SHARDS + 1
    assert codes == [*[-9] * SHARDS, 0]
    assert pickle.loads((tmp_path / "files").read_bytes()) == undisturbed[stage]
    assert begun(tmp_path / "journal") == [f"{stage} {index}" for index in range(SHARDS) for _ in range(2)], "each died once, then was done"


def test_a_driver_killed_beside_its_workers_takes_them_along(
    tmp_path: Path, shards: tuple[Shard, ...], undisturbed: dict[str, tuple[FileEntry, ...]]
) -> None:
    give(tmp_path, shards, (Death("driver", 3, str(tmp_path / "death")),))
    assert attempt("measure", tmp_path, 2) == -9
    finished = set((tmp_path / "scratch").glob("dataflow/*/*.json"))
    pids = {int(line.split()[2]) for line in (tmp_path / "journal").read_text().splitlines()}
    assert attempt("measure", tmp_path, 2) == 0
    assert pickle.loads((tmp_path / "files").read_bytes()) == undisturbed["measure"]
    counts = Counter(begun(tmp_path / "journal"))
    assert all(counts[f"measure {int(path.stem)}"] == 1 for path in finished), "what was committed was not done again"
    assert not [pid for pid in pids if lives(pid)]


@pytest.mark.parametrize("stage", ["measure", "sum"])
def test_a_worker_killed_at_any_shard_costs_that_shard_alone(
    tmp_path: Path, shards: tuple[Shard, ...], undisturbed: dict[str, tuple[FileEntry, ...]], stage: str
) -> None:
    deaths = tuple(Death("worker", index, str(tmp_path / f"death-{index}")) for index in (0, 2, 4))
    journal, execution = str(tmp_path / "journal"), Execution(workers=2)
    if stage == "measure":
        out, _ = measure_all(tmp_path, shards, MeasureTexts(journal, deaths), execution)
    else:
        out, _ = sum_all(tmp_path, shards, SumGroups(journal, deaths), execution, buckets=SHARDS)
    assert out.files == undisturbed[stage]
    assert Counter(begun(tmp_path / "journal")) == {f"{stage} {index}": 1 + (index % 2 == 0) for index in range(SHARDS)}
