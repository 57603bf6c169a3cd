"""A lab for `seaway eval`: a storage root, two tasks and a released model, before an engine that answers as a test says."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from assets.factory import Factory
from assets.profile import load_profile
from infra.dispatch.job import Job
from infra.dispatch.messages import Message
from infra.dispatch.outcome import Outcome
from ops.evaluation.records import EvaluationRecord
from orchestration.evaluate_launch import launch
from orchestration.evaluate_plan import Plan, Request, make_plan
from tests.journeys.lab import PROFILE
from tests.model.eval.tasks.released import BIRDS, EGGS, answer_task, choice_task, release

Answer = Callable[[Job], Outcome]


class ScriptedFactory(Factory):
    """A factory whose engine answers as a test says, and remembers what it was asked."""

    answer: Answer
    asked: list[str]

    def resolve(self, asset: str, partition: str | None) -> Any:
        """Nothing is published yet."""
        return SimpleNamespace(artifact=None)

    def run(self, job: Job, on_message: Callable[[Message], None]) -> Outcome:
        self.asked.append(str(job.partition))
        return self.answer(job)


@dataclass
class Lab:
    """A storage root, two tasks and a released model."""

    folder: Path
    factory: ScriptedFactory

    def request(self, **fields: Any) -> Request:
        return Request(**{"suite": self.folder / "suite.yaml", "models": self.folder / "models.yaml", **fields})

    def write(self, name: str, values: Any) -> None:
        (self.folder / name).write_text(yaml.safe_dump(values))

    def plan(self, **fields: Any) -> Plan:
        return make_plan(self.factory, self.request(**fields))

    def launch(self, name: str) -> list[EvaluationRecord]:
        return [record for _, record in launch(self.factory, self.plan(), name, lambda planned, message: None)]


SUITE = {
    "suite": "small",
    "evaluations": [{"task": "birds.yaml", "engine": "native"}, {"task": "eggs.yaml", "engine": "native", "limit": 2}],
}


def open_lab(folder: Path, monkeypatch: pytest.MonkeyPatch, jax_cache: Path) -> Lab:
    """A new lab in an empty folder."""
    for name, value in {"HOME_OF_TEST": folder / "home", "TEXTS": folder, "JAX_CACHE": jax_cache}.items():
        monkeypatch.setenv(name, str(value))
    (folder / "home").mkdir()
    release(folder / "release")
    choice_task(folder, BIRDS, metadata={"id_field": "id"})
    answer_task(folder, EGGS)
    factory = ScriptedFactory(load_profile(str(PROFILE)))
    factory.asked = []
    found = Lab(folder, factory)
    found.write("suite.yaml", SUITE)
    found.write("models.yaml", {"models": {"tiny": {"folder": "release"}}})
    return found
