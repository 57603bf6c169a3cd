"""`seaway eval`: what was selected ends in exactly one record, whatever became of its job."""

from pathlib import Path

import pyarrow as pa
import pytest

import orchestration.evaluate_job
from infra.archive.archive import Archive
from infra.artifacts.journal import entries
from infra.catalog.catalog import Catalog
from infra.dispatch.backend import EngineUnavailable
from infra.dispatch.endings import End, Ending
from infra.dispatch.job import Job
from infra.dispatch.outcome import JobCancelled, JobFailed, Outcome
from ops.evaluation.records import records_in, valid_record
from ops.evaluation.samples import SAMPLES, Sample, samples_batch
from ops.evaluation.settle import is_infrastructure
from orchestration.evaluate_job import benchmarks
from orchestration.evaluate_plan import missing
from tests.builders import artifact_of
from tests.orchestration.evaluating import SUITE, Answer, Lab, open_lab


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return open_lab(tmp_path, monkeypatch, tmp_path / "jax")


def scored(folder: Path, correct: int = 1) -> Answer:
    """An engine that publishes samples of two items."""

    def answer(job: Job) -> Outcome:
        samples = [Sample(task="t", doc_id=str(n), kind="generation", doc="{}", prompt="p", output="o") for n in range(2)]
        table = pa.Table.from_batches([samples_batch(samples)], SAMPLES.schema)
        stats = {"attempted": 2, "scored": 2, "correct": correct, "metrics": {"none": {"acc": correct / 2}}}
        stats |= {"headline_filter": "none", "headline_metric": "acc"}
        found = artifact_of(folder / job.recipe, {"samples.parquet": table}, stats)
        return Outcome(found, "built", 1, 1.0)

    return answer


def broken(folder: Path) -> Answer:
    """An engine that scores, and whose samples lack a column."""

    def answer(job: Job) -> Outcome:
        folder_of_job = folder / job.recipe
        return Outcome(artifact_of(folder_of_job, {"samples.parquet": pa.table({"task": ["t"]})}, {}), "built", 1, 1.0)

    return answer


def ended(ending: Ending) -> Answer:
    def answer(job: Job) -> Outcome:
        raise JobFailed(job, End(ending=ending, what="it ended", tail=("Traceback", "ValueError: no")), why="so", log="here")

    return answer


@pytest.mark.parametrize("ending", list(Ending))
def test_each_failure_has_one_status_and_the_next_evaluation_runs(lab: Lab, tmp_path: Path, ending: Ending) -> None:
    answers = iter([ended(ending), scored(tmp_path / "out")])
    lab.factory.answer = lambda job: next(answers)(job)
    first, second = lab.launch("one")
    assert first.status == ("infra_failed" if is_infrastructure(ending) else "failed")
    assert first.log_tail == ("Traceback", "ValueError: no")
    assert second.status == "succeeded"


def test_a_success_is_final_and_only_what_is_missing_runs_again(lab: Lab, tmp_path: Path) -> None:
    answers = iter([broken(tmp_path / "a"), scored(tmp_path / "b"), scored(tmp_path / "c", correct=2)])
    lab.factory.answer = lambda job: next(answers)(job)
    assert [record.status for record in lab.launch("one")] == ["artifact_failed", "succeeded"]
    assert [record.status for record in lab.launch("one")] == ["artifact_failed", "succeeded"]  # has its records: nothing runs
    again = lab.launch("two")
    assert [(record.status, record.launch) for record in again] == [("succeeded", "two"), ("succeeded", "one")]
    assert lab.factory.asked == ["tiny-birds", "tiny-eggs", "tiny-birds"]
    assert not list(missing(lab.plan()))
    archive = Archive(again[0].archive)
    assert [record.status for record in records_in(archive)] == ["artifact_failed", "succeeded"]
    assert archive.snapshot().sealed
    found = valid_record(records_in(archive))
    assert found is not None
    assert (found.coverage.correct if found.coverage else None) == 2


def test_every_record_is_in_the_catalog_and_comes_back_when_it_is_rebuilt(lab: Lab, tmp_path: Path) -> None:
    answers = iter([ended(Ending.NODE_LOST), scored(tmp_path / "out")])
    lab.factory.answer = lambda job: next(answers)(job)
    records = lab.launch("one")
    digest = records[0].model["digest"]
    with Catalog.open(lab.factory.profile.storage.catalog) as catalog:
        kept = [entry.value for entry in catalog.observations(digest)]
        assert sorted(kept, key=str) == sorted((record.model_dump(mode="json") for record in records), key=str)
    with Catalog.open(f"sqlite:///{tmp_path}/other.sqlite") as fresh:
        fresh.rebuild(lab.factory.store)
        assert len(fresh.observations(digest)) == 2
    lab.launch("one")
    assert len(list(entries(lab.factory.store.root, digest))) == 2


def test_a_launcher_that_comes_second_takes_the_success_that_is_there(lab: Lab, tmp_path: Path) -> None:
    answers: dict[str, Answer] = {"one": scored(tmp_path / "out")}

    def overtaken(job: Job) -> Outcome:
        outcome = answers["one"](job)
        if lab.factory.answer is overtaken:  # somebody else launches the same, and is done before we are
            lab.factory.answer = lambda same: outcome
            lab.launch("faster")
        return outcome

    lab.write("suite.yaml", {**SUITE, "evaluations": SUITE["evaluations"][:1]})
    lab.factory.answer = overtaken
    (record,) = lab.launch("slower")
    assert record.launch == "faster"
    snapshot = Archive(record.archive).snapshot()
    assert snapshot.rows("records") == 1
    assert snapshot.rows("samples") == 2


@pytest.mark.parametrize("error", [JobCancelled, EngineUnavailable])
def test_what_never_came_to_an_end_is_infrastructure(lab: Lab, error: type[Exception]) -> None:
    def answer(job: Job) -> Outcome:
        raise JobCancelled(job) if error is JobCancelled else EngineUnavailable("away")

    lab.factory.answer = answer
    assert {record.status for record in lab.launch("one")} == {"infra_failed"}


def test_the_job_in_dagster_tells_what_preflight_found(lab: Lab) -> None:
    asked = {"ops": {"evaluate_suite": {"config": {"suite": str(lab.folder / "nosuch.yaml"), "models": str(lab.folder / "models.yaml")}}}}
    done = benchmarks.execute_in_process(asked, resources={"factory": lab.factory}, raise_on_error=False)
    (failure,) = (event for event in done.all_events if event.is_step_failure)
    assert failure.step_failure_data.error is not None
    assert "nosuch.yaml: can't be read" in failure.step_failure_data.error.message


def test_the_job_in_dagster_shows_every_record_and_fails_where_one_is_no_success(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([ended(Ending.APPLICATION_ERROR), scored(tmp_path / "out")])
    lab.factory.answer = lambda job: next(answers)(job)
    monkeypatch.setattr(orchestration.evaluate_job, "Factory", lambda profile: lab.factory)
    files = {name: str(lab.folder / f"{name}.yaml") for name in ("suite", "models")}
    done = benchmarks.execute_in_process(
        {"ops": {"evaluate_suite": {"config": files}}}, resources={"factory": lab.factory}, raise_on_error=False
    )
    (failure,) = (event for event in done.all_events if event.is_step_failure)
    assert failure.step_failure_data.error is not None
    assert "tiny: birds: benchmarks[tiny-birds] failed" in failure.step_failure_data.error.message
    assert [record.status for one in lab.plan().evaluations for record in records_in(Archive(one.archive))] == ["failed", "succeeded"]
