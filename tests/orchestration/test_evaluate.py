"""`seaway eval`: what is wrong is told before anything is allocated, and what was selected ends in exactly one record."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import yaml

import orchestration.evaluate_job
from assets.factory import Factory
from assets.profile import load_profile
from infra.archive.archive import Archive
from infra.artifacts.artifact import Artifact
from infra.artifacts.journal import entries
from infra.artifacts.writer import Writer
from infra.catalog.catalog import Catalog
from infra.dispatch.backend import EngineUnavailable
from infra.dispatch.endings import End, Ending
from infra.dispatch.job import Job
from infra.dispatch.messages import Message
from infra.dispatch.outcome import JobCancelled, JobFailed, Outcome
from infra.storage.objects import list_names
from ops.evaluation.models import tokenizer_digest
from ops.evaluation.records import EvaluationRecord, records_in, valid_record
from ops.evaluation.samples import SAMPLES, Sample, samples_batch, samples_of
from ops.evaluation.settle import is_infrastructure
from orchestration.evaluate_job import benchmarks
from orchestration.evaluate_launch import launch
from orchestration.evaluate_plan import Plan, PreflightError, Request, make_plan, missing, profile_for
from tests.builders import artifact_of, publish
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


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    for name, value in {"HOME_OF_TEST": tmp_path / "home", "TEXTS": tmp_path, "JAX_CACHE": tmp_path / "jax"}.items():
        monkeypatch.setenv(name, str(value))
    (tmp_path / "home").mkdir()
    release(tmp_path / "release")
    choice_task(tmp_path, BIRDS, metadata={"id_field": "id"})
    answer_task(tmp_path, EGGS)
    factory = ScriptedFactory(load_profile(str(PROFILE)))
    factory.asked = []
    found = Lab(tmp_path, factory)
    found.write("suite.yaml", SUITE)
    found.write("models.yaml", {"models": {"tiny": {"folder": "release"}}})
    return found


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


def test_a_plan_says_what_would_run_and_allocates_nothing(lab: Lab) -> None:
    plan = lab.plan(device="cpu", band="batch", limit=3)
    assert [(one.title, one.items, one.job.resources.band) for one in plan.evaluations] == [
        ("tiny: birds", 3, "batch"),
        ("tiny: eggs", 2, "batch"),
    ]
    assert len(list(missing(plan))) == 2
    assert list_names(lab.factory.profile.storage.root) == ()
    assert [one.name for one in lab.plan(task=("eggs",)).evaluations] == ["eggs"]


def test_what_is_asked_decides_where_it_lies_and_where_the_files_lie_does_not(lab: Lab, tmp_path: Path) -> None:
    first = {one.name: one.job.recipe for one in lab.plan().evaluations}
    (tmp_path / "release").rename(tmp_path / "moved")
    lab.write("models.yaml", {"models": {"tiny": {"folder": str(tmp_path / "moved")}}})
    assert {one.name: one.job.recipe for one in lab.plan().evaluations} == first
    choice_task(tmp_path, BIRDS[:4], metadata={"id_field": "id"})
    changed = {one.name: one.job.recipe for one in lab.plan().evaluations}
    assert changed["birds"] != first["birds"]
    assert changed["eggs"] == first["eggs"]


def break_suite(**values: Any) -> Callable[[Lab], None]:
    return lambda lab: lab.write("suite.yaml", {**SUITE, **values})


def break_models(**source: Any) -> Callable[[Lab], None]:
    return lambda lab: lab.write("models.yaml", {"models": {"tiny": source}})


@pytest.mark.parametrize(
    ("damage", "answer"),
    [
        (break_suite(evaluations=[{"task": "nosuch.yaml"}]), r"nosuch.yaml: can't be read .*; correct the path of the task"),
        (break_suite(evaluations=[]), r"suite.yaml: evaluations: "),
        (break_suite(evaluations=[{"task": "birds.yaml"}, {"task": "birds.yaml"}]), r"suite.yaml: evaluations.name: birds occurs twice"),
        (
            break_suite(evaluations=[{"task": "birds.yaml", "credentials": ["NO_SUCH_KEY"]}]),
            r"evaluations.credentials: the credential NO_SUCH_KEY",
        ),
        (break_suite(evaluations=[{"task": "${NO_SUCH_FOLDER}/t.yaml"}]), r"evaluations.task: the variable NO_SUCH_FOLDER is not set"),
        (break_suite(tasks=[]), r"suite.yaml: tasks: unknown field"),
        (
            lambda lab: choice_task(lab.folder, [{"query": "q", "gold": 0}]),
            r"birds.jsonl, item 1: column 'choices' is missing, and doc_to_choice",
        ),
        (lambda lab: choice_task(lab.folder, [BIRDS[0], BIRDS[0]], metadata={"id_field": "id"}), r"birds.jsonl: id = 'a' occurs twice"),
        (lambda lab: choice_task(lab.folder, []), r"birds.jsonl: no item"),
        (
            lambda lab: answer_task(lab.folder, EGGS, generation_kwargs={"max_gen_toks": 96}),
            r"eggs writes up to generation_kwargs.max_gen_toks = 96",
        ),
        (break_models(folder="nosuch"), r"nosuch/config.json: can't be read"),
        (break_models(asset="hero"), r"models.yaml: models.tiny.asset: hero is not published for profile tiny"),
        (break_models(), r"models.yaml: models.tiny: give either asset or folder"),
        (lambda lab: other_tokenizer(lab.folder), r"release/tokenizer.json: vocab has 340 tokens and the model's vocab_size is 330"),
        (
            lambda lab: tokenizer_of_equal_size(lab.folder),
            r"release/tokenizer.json: digest is \w{16} and .*release/lineage.json names \w{16} as artifacts.tokenizer",
        ),
    ],
)
def test_preflight_refuses_in_a_sentence_that_names_file_and_field(lab: Lab, damage: Callable[[Lab], None], answer: str) -> None:
    damage(lab)
    with pytest.raises(PreflightError, match=answer):
        lab.plan()
    assert list_names(lab.factory.profile.storage.root) == ()


def other_tokenizer(folder: Path) -> None:
    release(folder / "other", vocabulary=340)
    (folder / "other" / "tokenizer.json").replace(folder / "release" / "tokenizer.json")


def tokenizer_of_equal_size(folder: Path) -> None:
    """Two words of the vocabulary change their ids: every size stays as it was."""
    tokenizer = folder / "release" / "tokenizer.json"
    tell_lineage(folder / "release")
    values = json.loads(tokenizer.read_text())
    vocabulary = values["model"]["vocab"]
    one, other = sorted(vocabulary, key=vocabulary.get)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    tokenizer.write_text(json.dumps(values))


def tell_lineage(folder: Path) -> None:
    """What our own releases say of the tokenizer that they were made with."""
    line = {"asset": "tokenizer", "digest": tokenizer_digest(folder / "tokenizer.json")}
    (folder / "lineage.json").write_text(json.dumps({"artifacts": [line]}))


def test_a_release_with_its_own_tokenizer_passes(lab: Lab) -> None:
    tell_lineage(lab.folder / "release")
    assert len(lab.plan().evaluations) == 2


def test_the_digest_of_a_tokenizers_file_is_that_of_its_artifact(tmp_path: Path) -> None:
    out = Writer(str(tmp_path / "attempt"), scratch_url=str(tmp_path / "scratch"))
    with out.open("tokenizer.json") as stream:
        stream.write((release(tmp_path / "release") / "tokenizer.json").read_bytes())
    assert tokenizer_digest(tmp_path / "release" / "tokenizer.json") == publish(tmp_path, out, {}).digest


def test_a_checkpoint_that_was_trained_on_a_tokenizer_of_equal_size_is_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def published(name: str, files: dict[str, Any]) -> Artifact:
        out = Writer(str(lab.folder / name / "attempt"), scratch_url=str(lab.folder / name / "scratch"))
        for file, value in files.items():
            out.write_json(file, value)
        return publish(lab.folder / name, out, {})

    tokenizer = published("tokenizer", {"tokenizer.json": json.loads((lab.folder / "release" / "tokenizer.json").read_text())})
    config = {"model": {"vocab_size": 330}, "loader": {"sequence_tokens": 96}}
    found = {"tokenizer": tokenizer}
    monkeypatch.setattr(lab.factory, "resolve", lambda asset, partition: SimpleNamespace(artifact=found[asset]))
    lab.write("models.yaml", {"models": {"tiny": {"asset": "hero"}}})
    found["hero"] = published("hero", {"config.json": config, "checkpoint/state.json": {"tokenizer": "f" * 64}})
    with pytest.raises(
        PreflightError, match=r"models.tiny.asset: .*hero was trained on tokenizer f{16} and this profile's is \w{16}; train"
    ):
        lab.plan()
    found["hero"] = published("own", {"config.json": config, "checkpoint/state.json": {"tokenizer": tokenizer.digest}})
    assert len(lab.plan().evaluations) == 2


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"model": ("big",)}, r"models: there is no 'big', and --model names it; choose among tiny"),
        ({"task": ("fish",)}, r"evaluations: there is no 'fish', and --task names it; choose among birds, eggs"),
        ({"device": "abacus"}, r"--device: "),
        ({"device": "h100x64"}, r"device h100x64: backend local is one machine"),
        ({"band": "urgent"}, r"--band: "),
    ],
)
def test_an_option_that_can_not_be_is_refused(lab: Lab, asked: dict[str, Any], answer: str) -> None:
    with pytest.raises(PreflightError, match=answer):
        lab.plan(**asked)


def test_another_backend_is_the_profile_on_it(lab: Lab) -> None:
    assert profile_for(lab.factory.profile, "local") is lab.factory.profile
    with pytest.raises(PreflightError, match="--backend slrum"):
        profile_for(lab.factory.profile, "slrum")


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


def test_a_real_job_grades_and_its_samples_are_in_the_archive(lab: Lab) -> None:
    factory = Factory(lab.factory.profile)
    plan = make_plan(factory, lab.request(task=("birds",)))
    ((_, record),) = launch(factory, plan, "real", lambda planned, message: None)
    assert record.status == "succeeded", record.reason
    assert record.coverage is not None
    assert (record.coverage.attempted, record.coverage.scored) == (5, 5)
    samples = [one for batch in Archive(record.archive).snapshot().batches("samples") for one in samples_of(batch)]
    assert [one.doc_id for one in samples] == ["a", "b", "c", "d", "e"]
    assert sum(one.grading.passed for one in samples if one.grading) == record.coverage.correct
    assert Artifact.open_at(str(record.artifact)).stats["correct"] == record.coverage.correct


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
