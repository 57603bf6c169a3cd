"""Normalization and the store, which stand on the primitives: the same bytes however they run, and whatever dies."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ops.dataflow.config import Execution
from ops.shards import read_table
from ops.units import MiB
from tests.ops.dataflow.programs import run

SMALL = Execution(memory_bytes=256 * MiB)


@pytest.mark.parametrize(
    ("name", "executions"), [("normalize", (SMALL, Execution(workers=2), Execution(workers=4))), ("store", (SMALL, Execution(workers=2)))]
)
def test_workers_memory_and_the_order_of_arrival_change_no_byte(tmp_path: Path, name: str, executions: tuple[Execution, ...]) -> None:
    expected = run(name, tmp_path / "one")
    for order, execution in enumerate(executions, 1):
        assert run(name, tmp_path / str(order), execution, order).digest == expected.digest, execution


@pytest.mark.parametrize("name", ["normalize", "store"])
def test_a_program_killed_behind_every_commit_ends_in_the_same_bytes_and_commits_nothing_twice(tmp_path: Path, name: str) -> None:
    expected = run(name, tmp_path / "undisturbed")
    directory = tmp_path / "killed"
    command = [sys.executable, "-m", "tests.ops.dataflow.programs", name, str(directory)]
    ended: list[subprocess.CompletedProcess[str]] = []
    while not ended or ended[-1].returncode:
        ended.append(subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}))
        shutil.rmtree(directory / "attempt", ignore_errors=True)  # every attempt of a job writes to a directory of its own
        assert len(ended) < 9, ended[-1].stderr
    committed = (directory / "journal").read_text().splitlines()
    assert [one.returncode for one in ended] == [*[-9] * len(committed), 0], ended[-1].stderr
    assert len(committed) == len(set(committed)) > 1
    assert ended[-1].stdout.strip() == expected.digest


def test_the_input_has_every_kind_of_row(tmp_path: Path) -> None:
    found = run("normalize", tmp_path)
    stats = found.stats
    assert (stats["shards"], stats["blank"], stats["duplicates"]) == (3, 4, 163)
    assert stats["whitespace_cut"] == sum(1 + n % 3 for n in range(0, 160, 11))
    assert 0 < stats["held_out"] < stats["documents"] == 161
    assert read_table(found, "rejects.parquet")["uri"].to_pylist() == [f"blank {n}" for n in range(4)]
    assert run("store", tmp_path / "store").stats["documents"]["contaminated"] > 0
