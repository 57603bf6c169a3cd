"""`seaway eval` on real workers: one is killed until its budget is spent, the next launch runs what is missing, and the board shows it."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from starlette.testclient import TestClient

from assets.factory import Factory
from infra.archive.archive import Archive
from infra.artifacts.artifact import Artifact
from infra.catalog.catalog import Catalog
from infra.dash.pages import Dash
from ops.evaluation.records import EvaluationRecord, records_in
from ops.evaluation.samples import samples_of
from orchestration.dash_source import ArchivedResults
from orchestration.evaluate_launch import launch
from orchestration.evaluate_plan import make_plan, missing
from tests.model.eval.tasks.released import BIRDS
from tests.orchestration.evaluating import Lab, open_lab

pytestmark = pytest.mark.faults

SUITE = {
    "suite": "small",
    "evaluations": [
        {"name": "all_birds", "task": "birds.yaml", "engine": "native"},
        {"name": "two_birds", "task": "birds.yaml", "engine": "native", "limit": 2},
    ],
}


class Killer:
    """Kills (SIGKILL) every worker of one evaluation as soon as it runs."""

    def __init__(self, home: Path, partition: str) -> None:
        self.killed: list[int] = []
        self._marks = (str(home), partition)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Killer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._over.wait(0.02):
            for process in psutil.Process().children(recursive=True):
                self._kill(process)

    def _kill(self, process: psutil.Process) -> None:
        try:
            command = " ".join(process.cmdline())
            if "infra.dispatch.worker" in command and all(mark in command for mark in self._marks):
                process.kill()
                self.killed.append(process.pid)
        except psutil.NoSuchProcess:
            return


@dataclass
class Launched:
    """What two launches came to: during the first, the workers of `all_birds` were killed."""

    lab: Lab
    killed: int
    first: list[EvaluationRecord]
    second: list[EvaluationRecord]
    ran: list[str]


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Launched]:
    assert pytestconfig.cache is not None
    folder = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as monkeypatch:
        lab = open_lab(folder, monkeypatch, pytestconfig.cache.mkdir("jax"))
        lab.write("suite.yaml", SUITE)
        with Killer(folder / "home", "tiny-all_birds") as killer:
            first, _ = real_launch(lab, "first")
        second, ran = real_launch(lab, "second")
        yield Launched(lab, len(set(killer.killed)), first, second, ran)


def real_launch(lab: Lab, name: str) -> tuple[list[EvaluationRecord], list[str]]:
    """The records, and which evaluations a job said anything of."""
    ran: set[str] = set()
    factory = Factory(lab.factory.profile)
    plan = make_plan(factory, lab.request())
    records = [record for _, record in launch(factory, plan, name, lambda planned, message: ran.add(planned.name))]
    return records, sorted(ran)


def test_an_evaluation_whose_workers_are_killed_is_one_infra_failed_and_keeps_no_other_from_running(launched: Launched) -> None:
    lost, done = launched.first
    assert launched.killed >= 2
    assert (lost.name, lost.status) == ("all_birds", "infra_failed")
    assert "SIGKILL" in str(lost.reason)
    assert lost.coverage is None
    assert (done.name, done.status) == ("two_birds", "succeeded"), done.reason


def test_the_next_launch_runs_only_what_is_missing_and_each_launch_has_one_record(launched: Launched) -> None:
    assert launched.ran == ["all_birds"]
    assert [(one.launch, one.status) for one in launched.second] == [("second", "succeeded"), ("first", "succeeded")]
    lost, done = (records_in(Archive(one.archive)) for one in launched.second)
    assert [(one.launch, one.status) for one in lost] == [("first", "infra_failed"), ("second", "succeeded")]
    assert [(one.launch, one.status) for one in done] == [("first", "succeeded")]
    assert not list(missing(launched.lab.plan()))
    with Catalog.open(launched.lab.factory.profile.storage.catalog) as catalog:
        kept = [EvaluationRecord.model_validate(entry.value).status for entry in catalog.observations(launched.second[0].model["digest"])]
    assert sorted(kept) == ["infra_failed", "succeeded", "succeeded"]


def test_a_real_job_grades_and_its_samples_are_in_the_archive(launched: Launched) -> None:
    record = launched.second[0]
    assert record.coverage is not None
    assert (record.coverage.attempted, record.coverage.scored) == (5, 5)
    samples = [one for batch in Archive(record.archive).snapshot().batches("samples") for one in samples_of(batch)]
    assert [one.doc_id for one in samples] == ["a", "b", "c", "d", "e"]
    assert sum(one.grading.passed for one in samples if one.grading) == record.coverage.correct
    assert Artifact.open_at(str(record.artifact)).stats["correct"] == record.coverage.correct


def test_the_board_shows_the_launch_from_its_rates_to_the_reason_of_one_item(launched: Launched) -> None:
    storage = launched.lab.factory.profile.storage
    client = TestClient(Dash(ArchivedResults(storage.root, storage.catalog), storage.root).application())
    board = client.get("/").text
    assert "tiny" in board
    for benchmark in ("all_birds", "two_birds, first 2"):
        assert benchmark in board
    coverage = launched.second[0].coverage
    assert coverage is not None
    results = ArchivedResults(storage.root, storage.catalog).results()
    assert {(one.benchmark, one.cohort, one.status) for one in results} == {
        ("all_birds", "first", "infra_failed"),
        ("all_birds", "second", "succeeded"),
        ("two_birds, first 2", "first", "succeeded"),
    }
    shown = next(one for one in results if one.cohort == "second")
    assert shown.estimate is not None
    assert shown.estimate.complete_case == coverage.correct / 5
    run = client.get("/run", params={"run": shown.run})
    assert run.status_code == 200
    for bird in BIRDS:
        assert f"birds / {bird['id']}" in run.text
    page = ArchivedResults(storage.root, storage.catalog).page(shown, after=None, limit=1, verdict="passed")
    item = client.get("/sample", params={"run": shown.run, "key": json.dumps(page.samples[0].key)})
    assert item.status_code == 200
    assert "loglik" in item.text
