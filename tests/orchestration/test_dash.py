"""The board over a profile's own storage: what evaluations committed is what it shows."""

import json
import re
import signal
from collections.abc import Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.archive.archive import Archive
from infra.artifacts.manifest import MANIFEST_NAME, Manifest, digest_of
from infra.artifacts.store import ArtifactStore
from infra.artifacts.writer import Writer
from infra.catalog.catalog import Catalog
from infra.dash.results import Result, Unavailable
from infra.storage.objects import list_files, replace
from ops.evaluation import statistics
from ops.evaluation.records import RECORDS, Coverage, EvaluationRecord, Status, archive_of, record_row
from ops.evaluation.samples import SAMPLES, Choice, Grading, Message, Sample, samples_batch
from ops.evaluation.statistics import Tally
from orchestration.dash_source import ArchivedResults
from tests.infra.dispatch.builders import wait_for
from tests.journeys.lab import Lab

FILTER = "flexible-extract"


def record(run: str, launch: str, status: Status = "succeeded", **fields: Any) -> EvaluationRecord:
    usual: dict[str, Any] = {
        "suite": "core",
        "name": "gsm8k",
        "version": "core-1",
        "description": "",
        "model": {"name": "hero", "digest": "a" * 64},
        "evaluation": {"limit": None},
        "archive": "",
        "seconds": 1.0,
        "at": "2026-11-30T12:00:00+00:00",
    }
    if status == "succeeded":
        usual |= {
            "metrics": {FILTER: {"exact_match": 0.5}},
            "headline": (FILTER, "exact_match"),
            "coverage": Coverage(attempted=5, scored=4, correct=2),
        }
    return EvaluationRecord(run_id=run, launch=launch, status=status, **{**usual, **fields})


def answer(number: int, *, passed: bool | None = True, extracted: str | None = "7") -> Sample:
    grading = None if passed is None else Grading("exact_match", "exact_match", float(passed), passed, json.dumps({"expected": "7"}))
    return Sample(
        task="gsm8k",
        doc_id=f"{number}",
        kind="generation",
        filter=FILTER,
        doc=json.dumps({"question": "how many?"}),
        messages=(Message("user", "how many?\u2028"),),
        output="seven",
        extracted=extracted,
        grading=grading,
        metrics={} if passed is None else {"exact_match": float(passed)},
    )


ANSWERS = [answer(number, passed=None if number == 4 else number % 2 == 0) for number in range(5)]


def commit(root: Path, told: EvaluationRecord, samples: Sequence[Sample] = ()) -> None:
    """As `orchestration.evaluate_launch` does: in one step, and sealed behind a success."""
    archive = Archive(archive_of(str(root), told.run_id))
    with archive.transaction() as transaction:
        if samples:
            transaction.append(SAMPLES, samples_batch(samples))
        transaction.append(RECORDS, record_row(told))
    if told.status == "succeeded":
        archive.seal()


@pytest.fixture
def source(tmp_path: Path) -> ArchivedResults:
    return ArchivedResults(str(tmp_path), f"sqlite:///{tmp_path}/catalog.db")


def only(source: ArchivedResults) -> Result:
    (found,) = source.results()
    return found


def test_a_success_is_its_rate_over_all_items_it_set_out_for(source: ArchivedResults, tmp_path: Path) -> None:
    commit(tmp_path, record("1" * 16, "autumn"), ANSWERS)
    found, expected = only(source), statistics.estimate(Tally(5, 4, 2))
    assert found.estimate is not None
    assert vars(found.estimate) == vars(expected)
    assert (found.model, found.benchmark, found.metric, found.cohort) == ("hero", "gsm8k", "exact_match · flexible-extract", "autumn")
    assert (found.coverage, found.errors) == (0.8, {"without a grade": 1})
    assert found.is_valid
    assert only(source) == found, "a second look, at what is remembered"


def test_a_failure_says_why_and_a_later_success_stands_beside_it(source: ArchivedResults, tmp_path: Path) -> None:
    commit(tmp_path, record("1" * 16, "first", "infra_failed", reason="the node went away", log_tail=("OSError: gone",)))
    lost = only(source)
    assert (lost.status, lost.detail, lost.has_samples) == ("infra_failed", "the node went away\nOSError: gone", False)
    commit(tmp_path, record("1" * 16, "second"), ANSWERS)
    assert [(one.cohort, one.status) for one in source.results()] == [("first", "infra_failed"), ("second", "succeeded")]


def test_samples_come_by_key_and_by_verdict(source: ArchivedResults, tmp_path: Path) -> None:
    commit(tmp_path, record("1" * 16, "autumn"), ANSWERS)
    result = only(source)
    page = source.page(result, after=None, limit=2, verdict=None)
    assert [one.verdict for one in page.samples] == ["passed", "failed"]
    assert page.has_more
    rest = source.page(result, after=page.samples[-1].key, limit=9, verdict=None)
    assert [one.key for one in rest.samples] == [("gsm8k", f"{number}", 0, FILTER) for number in (2, 3, 4)]
    for verdict, numbers in (("passed", "02"), ("failed", "13"), ("ungraded", "4")):
        found = source.page(result, after=None, limit=9, verdict=verdict).samples  # type: ignore[arg-type]
        assert "".join(str(one.key[1]) for one in found) == numbers
    sample = source.sample(result, ("gsm8k", "1", 0, FILTER))
    assert sample is not None
    assert (sample.reason, sample.messages, sample.document) == (
        '{"expected": "7"}',
        [("user", "how many?\u2028")],
        '{"question": "how many?"}',
    )
    assert source.sample(result, ("gsm8k", "9", 0, FILTER)) is None


def test_a_trajectory_is_read_from_the_runs_own_archive_and_from_nowhere_else(source: ArchivedResults, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("not for the board")
    told = record("1" * 16, "autumn", coverage=Coverage(attempted=1, scored=1, correct=1))
    archive = Archive(archive_of(str(tmp_path), told.run_id))
    with archive.transaction() as transaction:
        uri = transaction.put_blob("trajectories/0.json", b"step\xff \xe2\x80\xa8 1")
        transaction.append(SAMPLES, samples_batch([replaced(ANSWERS[0], trajectory=uri)]))
        transaction.append(RECORDS, record_row(told))
    result = only(source)
    found = source.sample(result, ("gsm8k", "0", 0, FILTER))
    assert found is not None
    assert found.trajectory == uri
    assert source.trajectory(result, uri, 100) == "step\\xff \u2028 1"
    assert source.trajectory(result, uri, 4) == "step"
    away = (f"file://{tmp_path}/secret.txt", f"{tmp_path}/secret.txt", "archive://blobs/../../secret.txt", f"archive://blobs/x::{tmp_path}")
    for other in away:
        with pytest.raises(Unavailable, match="can't be read"):
            source.trajectory(result, other, 100)


def test_choices_say_which_was_chosen_and_which_is_right(source: ArchivedResults, tmp_path: Path) -> None:
    item = Sample(
        task="arc",
        doc_id="1",
        kind="multiple_choice",
        doc="{}",
        prompt="a surrogate: \\ud800",
        choices=(Choice(" a", -1.0, True), Choice(" b", -2.0, False)),
        model_choice=0,
        gold_choice=1,
        grading=Grading("loglik", "acc", 0.0, False),
        metrics={"acc": 0.0},
    )
    coverage = Coverage(attempted=1, scored=1, correct=0)
    commit(
        tmp_path, record("2" * 16, "autumn", name="arc", coverage=coverage, headline=("none", "acc"), metrics={"none": {"acc": 0}}), [item]
    )
    result = only(source)
    assert result.metric == "acc"
    found = source.sample(result, ("arc", "1", 0, "none"))
    assert found is not None
    assert [(one.is_chosen, one.is_gold) for one in found.choices] == [(True, False), (False, True)]
    (listed,) = source.page(result, after=None, limit=9, verdict=None).samples
    assert (listed.answer, listed.right_choice) == (" a", " b")


def test_answers_from_which_nothing_could_be_taken_are_suspect(source: ArchivedResults, tmp_path: Path) -> None:
    blank = [answer(number, passed=False, extracted=extracted) for number, extracted in enumerate(["[invalid]", None, ""])]
    commit(tmp_path, record("1" * 16, "autumn", coverage=Coverage(attempted=3, scored=3, correct=0)), blank)
    assert [sentence.split(":")[0] for sentence in only(source).suspicions] == ["No answer could be taken from any output"]
    assert not only(source).is_valid


def test_a_part_of_a_benchmark_is_another_benchmark_and_models_of_one_name_are_told_apart(source: ArchivedResults, tmp_path: Path) -> None:
    commit(tmp_path, record("1" * 16, "autumn"), ANSWERS)
    commit(tmp_path, record("2" * 16, "autumn", evaluation={"limit": 1500}), ANSWERS)
    commit(tmp_path, record("3" * 16, "winter", model={"name": "hero", "digest": "b" * 64}), ANSWERS)
    assert {(one.model, one.benchmark) for one in source.results()} == {
        ("hero · aaaaaaaa", "gsm8k"),
        ("hero · aaaaaaaa", "gsm8k, first 1,500"),
        ("hero · bbbbbbbb", "gsm8k"),
    }


def test_a_number_that_is_no_rate_has_no_interval(source: ArchivedResults, tmp_path: Path) -> None:
    fields = {"headline": ("none", "bits_per_byte"), "metrics": {"none": {"bits_per_byte": 0.87}}}
    commit(tmp_path, record("1" * 16, "autumn", coverage=Coverage(attempted=5, scored=0, correct=0), **fields), ANSWERS)
    assert (only(source).measure, only(source).estimate, only(source).errors) == (0.87, None, {})


def test_records_that_can_not_be_read_are_named(source: ArchivedResults, tmp_path: Path) -> None:
    commit(tmp_path, record("1" * 16, "autumn"), ANSWERS)
    folder = archive_of(str(tmp_path), "1" * 16)
    for name in list_files(folder):
        if name.endswith(".parquet"):
            replace(f"{folder}/{name}", b"torn")
    with pytest.raises(Unavailable, match="The records of evaluation 1111111111111111 can't be read"):
        source.results()


def published(root: Path, asset: str, partition: str | None, files: dict[str, Any], **fields: Any) -> str:
    """An artifact of JSON files in the store; its digest."""
    store = ArtifactStore(str(root))
    recipe = f"{abs(hash((asset, partition))):016x}"[:16]
    address = store.address(asset, partition, recipe)
    out = Writer(f"{address}/attempt-0", scratch_url=f"{address}/.scratch")
    for name, value in files.items():
        out.write_json(name, value)
    manifest = Manifest(recipe=recipe, digest=digest_of(out.files), directory="attempt-0", files=out.files, **{"stats": {}, **fields})
    (Path(address) / MANIFEST_NAME).write_text(manifest.model_dump_json())
    return manifest.digest


def test_predictions_stand_beside_what_was_measured(source: ArchivedResults, tmp_path: Path) -> None:
    entry = {"identity": {"metric": "macro_bits_per_byte"}, "predicted": 0.9, "tolerance": 0.02, "token_mark": 1000}
    digest = published(
        tmp_path, "prediction", None, {"prediction.json": entry}, payload={"program": "p", "inputs": {}}, stats={"tolerance": 0.02}
    )
    told = {"metric": "macro_bits_per_byte", "predicted": 0.9, "measured": 0.91, "difference": 0.01}
    scored = {**told, "score": {"tolerance": 0.02}, "reason_not_scored": None}
    branch = {**told, "score": None, "reason_not_scored": "it is a branch"}
    for partition, result in (("hero", scored), ("cooldown", branch)):
        body = {"prediction": result, "run": {"tokens": 1000, "step": 7}}
        published(tmp_path, "evaluation", partition, {"evaluation.json": body}, payload={"program": "e", "inputs": {"prediction": digest}})
    with Catalog.open(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        catalog.rebuild(ArtifactStore(str(tmp_path)))
    cooldown, hero = source.predictions()
    assert (hero.subject, hero.tolerance, hero.is_within) == ("hero", 0.02, True)
    assert (cooldown.is_within, cooldown.unscored) == (None, "it is a branch")


def test_a_prediction_waits_until_something_is_measured(source: ArchivedResults, tmp_path: Path) -> None:
    entry = {"identity": {"metric": "loss"}, "predicted": 0.9, "tolerance": 0.02, "token_mark": 1000}
    published(tmp_path, "prediction", None, {"prediction.json": entry}, payload={"program": "p", "inputs": {}}, stats={"tolerance": 0.02})
    with Catalog.open(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        catalog.rebuild(ArtifactStore(str(tmp_path)))
    (waiting,) = source.predictions()
    assert (waiting.measured, waiting.predicted) == (None, 0.9)


def test_a_catalog_that_can_not_be_opened_is_not_available(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="seaway catalog rebuild"):
        ArchivedResults(str(tmp_path), "nosuchsql://here").predictions()


def test_the_command_serves_an_empty_store(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "home", tmp_path / "texts")
    lab.home.mkdir()
    log = tmp_path / "dash.log"
    running = lab.start("seaway", "dash", "--port", "0", log=log)
    try:
        url = wait_for(lambda: re.search(r"http://127\.0\.0\.1:\d+", log.read_text()), "the board's address")[0]
        pages = {path: httpx.get(f"{url}{path}", timeout=60) for path in ("/", "/predictions", "/run?run=x")}
    finally:
        running.send_signal(signal.SIGINT)
        code = running.wait(timeout=60)
    assert [page.status_code for page in pages.values()] == [200, 200, 404]
    assert "Nothing is evaluated yet" in pages["/"].text
    assert "Nothing is predicted yet" in pages["/predictions"].text
    assert code == 128 + signal.SIGINT, log.read_text()
