"""The lineage's own task: however a checkpoint's job ends, Dagster's run leaves exactly one record of it, and the board reads it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import orchestration.definitions  # noqa: F401 - the lineage is filled as it loads
from assets.tasks import rates, task_scores
from infra.archive.archive import Archive
from infra.artifacts.recipe import recipe_of
from infra.catalog.catalog import Catalog
from infra.dispatch.endings import End, Ending
from infra.dispatch.job import Job, Resources, Timeouts
from infra.dispatch.outcome import JobFailed, Outcome
from ops.evaluation.records import EvaluationRecord, archive_of, records_in
from ops.evaluation.samples import SAMPLES, Grading, Sample, samples_batch
from ops.evaluation.statistics import wilson
from orchestration.dash_source import ArchivedResults
from tests.builders import artifact_of
from tests.orchestration.evaluating import Lab, ScriptedFactory, open_lab

PAYLOAD = {"program": "score_items", "inputs": {"checkpoint": "c" * 64, "task_items": "d" * 64, "tokenizer": "e" * 64}}
STATS = {
    "attempted": 2,
    "scored": 2,
    "correct": 1,
    "headline_metric": "acc_norm",
    "headline_filter": "none",
    "metrics": {"none": {"acc_norm": 0.5}},
    "by_domain": {"code": (1, 1), "prose": (1, 0)},
    "chance": 0.25,
}


class OneJobFactory(ScriptedFactory):
    """A factory that knows one job."""

    def resolve(self, asset: str, partition: str | None) -> Any:
        return SimpleNamespace(artifact=None, waiting_for=(), node=f"{asset}[{partition}]", partition=partition)

    def job(self, resolved: Any) -> Job:
        recipe = recipe_of(PAYLOAD)
        address = self.store.address("task_scores", resolved.partition, recipe)
        return Job(
            asset="task_scores", partition=resolved.partition, program="model.eval.tasks.score_items:score_items", version="1",
            config={"batch_tokens": 8192}, inputs={}, recipe=recipe, payload=PAYLOAD, address=address,
            resources=Resources(), timeouts=Timeouts(),
        )  # fmt: skip


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    opened = open_lab(tmp_path, monkeypatch, tmp_path / "jax")
    opened.factory = OneJobFactory(opened.factory.profile)
    opened.factory.asked = []
    return opened


def samples() -> pa.Table:
    graded = [("a", Grading("loglik", "acc_norm", 1.0, True)), ("b", Grading("loglik", "acc_norm", 0.0, False))]
    rows = [Sample(task="t", doc_id=name, kind="generation", doc="{}", prompt="p", output="o", grading=one) for name, one in graded]
    return pa.Table.from_batches([samples_batch(rows)], SAMPLES.schema)


def published(folder: Path, table: pa.Table, stats: Mapping[str, Any]) -> Callable[[Job], Outcome]:
    return lambda job: Outcome(artifact_of(folder, {"samples.parquet": table}, stats), "built", 1, 1.0)


def lost(ending: Ending) -> Callable[[Job], Outcome]:
    def answer(job: Job) -> Outcome:
        raise JobFailed(job, End(ending=ending, what="it ended"), why="so", log="here")

    return answer


def materialize(lab: Lab) -> dg.ExecuteInProcessResult:
    return dg.materialize([task_scores], partition_key="hero", resources={"factory": lab.factory}, raise_on_error=False)


def kept(lab: Lab) -> list[EvaluationRecord]:
    return records_in(Archive(archive_of(lab.factory.profile.storage.root, recipe_of(PAYLOAD))))


@pytest.mark.parametrize(("ending", "status"), [(Ending.APPLICATION_ERROR, "failed"), (Ending.CRASHED, "infra_failed")])
def test_a_job_that_fails_is_one_record_and_the_next_run_adds_its_own(lab: Lab, tmp_path: Path, ending: Ending, status: str) -> None:
    lab.factory.answer = lost(ending)
    assert not materialize(lab).success
    assert [(one.status, one.model["name"], one.suite) for one in kept(lab)] == [(status, "hero", "lineage")]
    lab.factory.answer = published(tmp_path / "out", samples(), STATS)
    assert materialize(lab).success
    assert [one.status for one in kept(lab)] == [status, "succeeded"]
    assert materialize(lab).success, "again, with nothing new to say"
    assert len(kept(lab)) == 2
    storage = lab.factory.profile.storage
    with Catalog.open(storage.catalog) as catalog:
        assert len(catalog.observations("c" * 64)) == 2
    shown = ArchivedResults(storage.root, storage.catalog).results()
    assert [(one.model, one.benchmark, one.status) for one in shown] == [
        ("hero", "continuations", status),
        ("hero", "continuations", "succeeded"),
    ]


def test_samples_that_can_not_be_read_are_artifact_failed_and_the_run_says_why(lab: Lab, tmp_path: Path) -> None:
    lab.factory.answer = published(tmp_path / "out", pa.table({"task": ["t"]}), STATS)
    done = materialize(lab)
    (failure,) = (event for event in done.all_events if event.is_step_failure)
    assert failure.step_failure_data.error is not None
    assert "samples.parquet has no column 'schema_version'" in failure.step_failure_data.error.message
    assert [one.status for one in kept(lab)] == ["artifact_failed"]


def test_dagster_shows_rates_with_intervals_beside_chance(lab: Lab, tmp_path: Path) -> None:
    lab.factory.answer = published(tmp_path / "out", samples(), STATS)
    (shown,) = materialize(lab).asset_materializations_for_node("task_scores")
    assert "data:image/png;base64," in str(shown.metadata["by_domain"].value)
    rows = rates(STATS)
    assert [(row["slice"], row["rate"], row["items"]) for row in rows] == [("all", 0.5, 2), ("code", 1.0, 1), ("prose", 0.0, 1)]
    low, high = wilson(1, 2, 1.959963984540054)
    assert (rows[0]["low"], rows[0]["high"]) == pytest.approx((low, high))
