"""`seaway eval --dry-run`: what is wrong is told, by file and field, before anything is allocated."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from infra.storage.objects import list_names
from ops.config import TokenizerConfig
from ops.evaluation.models import tokenizer_digest
from ops.tokenizer import train_tokenizer
from orchestration.evaluate_plan import PreflightError, missing, profile_for
from tests.builders import publish, run_program
from tests.model.eval.tasks.released import BIRDS, EGGS, answer_task, choice_task, release
from tests.ops.conftest import CORPUS
from tests.ops.normalized import normalized
from tests.orchestration.evaluating import SUITE, Lab, open_lab


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return open_lab(tmp_path, monkeypatch, tmp_path / "jax")


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
            break_suite(evaluations=[{"task": "arc_easy"}]),
            r"suite.yaml: evaluations.task: .*arc_easy: can't be read .*relative to the suite",
        ),
        (break_suite(evaluations=[{"task": "birds.yaml", "limit": 0}]), r"suite.yaml: evaluations.0.limit: must be [^;]*$"),
        (
            lambda lab: (lab.folder / "models.yaml").write_text("models:\n  tiny: {folder: release}\n  tiny: {asset: hero}\n"),
            r"models.yaml, line 3: tiny is written twice",
        ),
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
        (lambda lab: cut_short(lab.folder / "release" / "model.safetensors"), r"release/model.safetensors: no whole safetensors file"),
        (
            lambda lab: (lab.folder / "release" / "lineage.json").write_text('{"artifacts": [{"asset": "tokenizer"}]}'),
            r"release/lineage.json: artifacts is no list of assets with their digests",
        ),
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


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


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


def test_the_digest_of_a_tokenizers_file_is_that_of_the_artifact_it_was_copied_from(tmp_path: Path) -> None:
    source = normalized(tmp_path / "source", list(CORPUS))
    trained = run_program(
        train_tokenizer, TokenizerConfig(vocab_size=300, max_source_share=1.0), tmp_path / "trained", normalized={"prose": source}
    )
    assert len(trained.names) > 1, "an artifact of one file would not show whether the others count"
    assert tokenizer_digest(trained.local_path("tokenizer.json")) == trained.digest


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
