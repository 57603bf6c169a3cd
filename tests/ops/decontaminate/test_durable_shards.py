"""Contamination and rules on the dataflow: the same bytes for any number of workers and any order of documents, and nothing
that was committed is done again."""

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import ProgramConfig
from infra.artifacts.program import Program
from infra.artifacts.writer import Writer
from ops.dataflow.config import Execution
from ops.decontaminate.config import ContaminationConfig, EvaluationNgramsConfig
from ops.decontaminate.flag import flag_contamination
from ops.decontaminate.index import index_evaluations
from ops.rules.config import RulesConfig
from ops.rules.labels import label_rules
from tests.builders import publish, run_program
from tests.ops.decontaminate.items import evaluation_set, prose
from tests.ops.normalized import normalized

SHARDS = 3
QUESTIONS = [prose(900_000 + n, 40) for n in range(5)]
TEXTS = [f"{prose(n, 60)}.\n\n{QUESTIONS[n % 5] if n % 3 else ''}" for n in range(60)]
STAGES: Mapping[str, int] = {"flags": 2, "rules": 1}  # how often each goes over the shards


@dataclass
class Attempt:
    """One attempt at a program; `directory` keeps what was committed for the next one."""

    directory: Path
    dies_after: int = 0
    saved: int = 0

    def save(self) -> None:
        self.saved += 1
        if self.saved == self.dies_after:
            raise Killed

    def run(self, program: Program, config: ProgramConfig, inputs: Mapping[str, Artifact]) -> Artifact:
        self.directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.directory / "attempt", ignore_errors=True)
        out = Writer(str(self.directory / "attempt"), scratch_url=str(self.directory / "scratch"), saved=self.save)
        return publish(self.directory, out, program(config, **inputs, out=out).model_dump(mode="json"))


Run = Callable[[Attempt, Artifact, Execution], Artifact]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """How to run each program."""
    folder = tmp_path_factory.mktemp("index")
    config = EvaluationNgramsConfig(evaluations=(evaluation_set(folder / "e", "quiz", QUESTIONS),))
    index = run_program(index_evaluations, config, folder / "index", normalized={})

    def flags(attempt: Attempt, source: Artifact, execution: Execution) -> Artifact:
        settings = ContaminationConfig(execution=execution, boilerplate_documents=100)
        return attempt.run(flag_contamination, settings, {"normalized": source, "evaluation_ngrams": index})

    def rules(attempt: Attempt, source: Artifact, execution: Execution) -> Artifact:
        return attempt.run(label_rules, RulesConfig(execution=execution), {"normalized": source})

    return {"flags": flags, "rules": rules}.__getitem__


@pytest.mark.parametrize("stage", STAGES)
def test_workers_and_the_order_of_documents_change_no_byte(tmp_path: Path, run_of: Callable[[str], Run], stage: str) -> None:
    shuffled = random.Random(1).sample(TEXTS, len(TEXTS))
    sources = {name: normalized(tmp_path / name, texts, shards=SHARDS) for name, texts in (("given", TEXTS), ("shuffled", shuffled))}
    run = run_of(stage)
    alone = run(Attempt(tmp_path / "alone"), sources["given"], Execution())
    others = [
        run(Attempt(tmp_path / "workers"), sources["given"], Execution(workers=2)),
        run(Attempt(tmp_path / "other order"), sources["shuffled"], Execution(memory_bytes=256 << 20)),
    ]
    assert [(other.digest, other.stats) for other in others] == [(alone.digest, alone.stats)] * 2
    assert alone.stats["documents"] == len(TEXTS)
    assert alone.stats.get("contaminated", 40) == 40


class Killed(BaseException):
    """Nobody catches a death."""


@pytest.mark.parametrize("stage", STAGES)
def test_a_death_at_any_shard_boundary_costs_no_shard_that_was_committed(tmp_path: Path, run_of: Callable[[str], Run], stage: str) -> None:
    source, run, whole = normalized(tmp_path / "in", TEXTS, shards=SHARDS), run_of(stage), STAGES[stage] * SHARDS
    undisturbed = run(Attempt(tmp_path / "undisturbed"), source, Execution())
    for boundary in range(1, whole + 1):
        directory = tmp_path / str(boundary)
        with pytest.raises(Killed):
            run(Attempt(directory, dies_after=boundary), source, Execution())
        second = Attempt(directory)
        resumed = run(second, source, Execution())
        assert (resumed.digest, resumed.stats) == (undisturbed.digest, undisturbed.stats)
        assert second.saved == whole - boundary
