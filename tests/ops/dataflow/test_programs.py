"""Every program over documents, which all stand on the primitives: the same bytes however they run, and whatever dies."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ops.dataflow.config import Execution
from ops.shards import read_table
from ops.units import MiB
from tests.ops.dataflow.mortal import Outcome
from tests.ops.dataflow.programs import STAGES, run

SMALL = Execution(memory_bytes=256 * MiB)
SEVERAL = {"normalize": (2, 4), **dict.fromkeys(("extract", "contamination", "rules", "store"), (2,))}  # workers
PAST_THE_DATAFLOW = ("fuzzy", "store")  # what they write at last begins anew when they die
TOGETHER = (
    ("exact", "paragraphs", "fuzzy"),
    ("contamination", "minhash", "rules", "tokens"),
    ("extract", "normalize", "language", "quality", "store"),
)
UNTHREADED = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.mark.parametrize("name", STAGES)
def test_memory_workers_and_the_order_of_arrival_change_no_byte(tmp_path: Path, name: str) -> None:
    expected = run(name, tmp_path / "one")
    executions = [SMALL, *(Execution(workers=workers) for workers in SEVERAL.get(name, ()))]
    for order, execution in enumerate(executions, 1):
        found = run(name, tmp_path / str(order), execution, order)
        assert (found.digest, found.stats) == (expected.digest, expected.stats), execution


@pytest.mark.faults
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux: whether a process may fork is read off its threads")
@pytest.mark.parametrize("names", TOGETHER)
def test_a_program_killed_behind_every_commit_ends_in_the_same_bytes_and_commits_nothing_twice(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "tests.ops.dataflow.mortal", str(tmp_path / "killed"), *names]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, **UNTHREADED})
    outcomes = [Outcome(**json.loads(line)) for line in ended.stdout.splitlines()]
    assert len(outcomes) == len(names), ended.stderr
    for name, outcome in zip(names, outcomes, strict=True):
        deaths = len(outcome.committed) + outcome.was_torn + outcome.was_half_written
        assert outcome.codes == [*[-signal.SIGKILL] * deaths, 0], (name, ended.stderr)
        assert len(outcome.committed) == len(set(outcome.committed)), name
        assert len(outcome.committed) > 1 or name == "fuzzy"
        assert outcome.was_torn == bool(outcome.committed)
        assert outcome.was_half_written or name not in PAST_THE_DATAFLOW
        undisturbed = run(name, tmp_path / name)
        assert (outcome.digest, outcome.stats) == (undisturbed.digest, undisturbed.stats), name


def test_every_program_is_killed() -> None:
    assert sorted(name for names in TOGETHER for name in names) == sorted(STAGES)


def test_the_inputs_have_every_kind_of_row(tmp_path: Path) -> None:
    normalized = run("normalize", tmp_path)
    stats = normalized.stats
    assert (stats["shards"], stats["blank"], stats["duplicates"]) == (3, 4, 163)
    assert stats["whitespace_cut"] == sum(1 + n % 3 for n in range(0, 160, 11))
    assert 0 < stats["held_out"] < stats["documents"] == 161
    assert read_table(normalized, "rejects.parquet")["uri"].to_pylist() == [f"blank {n}" for n in range(4)]
    found = {name: run(name, tmp_path / name).stats for name in STAGES}
    assert found["store"]["documents"]["contaminated"] > 0
    assert found["extract"]["rejects"] == {"not-a-response": 1, "truncated": 1}
    assert 0 < found["exact"]["duplicates"] < found["exact"]["documents"]
    assert found["paragraphs"]["bytes_removed"] > 0
    assert found["minhash"]["without_signature"] == 1
    assert found["fuzzy"]["removed"] > 0
    assert 0 < found["contamination"]["contaminated"] < found["contamination"]["documents"]
    assert len(set(found["rules"]["failed"].values())) > 3
    assert len(found["language"]["languages"]) > 2
    assert found["quality"]["code_documents"] > 0
