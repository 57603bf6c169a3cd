"""Samples: what breaks the contract is refused by key and field, what keeps it survives the archive."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infra.archive.archive import Archive
from infra.archive.errors import DuplicateKeyError
from infra.archive.tables import Table
from ops.evaluation.samples import SAMPLES, Choice, Grading, InvalidSampleError, Message, Sample, samples_batch, samples_of

AWKWARD = "a\u2028b\u2029c\u0085d\x0be\x0cf\U0001f600\ud800\\ud800"
CHOSEN = Sample(
    task="arc_easy",
    doc_id="Mercury_7175875",
    kind="multiple_choice",
    doc=json.dumps({"question": AWKWARD}),
    prompt=f"Question: {AWKWARD}\nAnswer:",
    choices=(Choice(" A", -1.5, True), Choice(AWKWARD, -math.inf, False)),
    model_choice=0,
    gold_choice=1,
    grading=Grading("loglik", "acc", 0.0, False),
    metrics={"acc": 0.0, "acc_norm": 1.0},
)
WRITTEN = Sample(
    task="gsm8k",
    doc_id="17",
    kind="generation",
    doc="{}",
    filter="strict-match",
    messages=(Message("user", AWKWARD), Message("assistant", "")),
    output=AWKWARD,
    extracted="",
    grading=Grading("exact_match", "exact_match", 1.0, True, detail='{"match": "\\ud800"}'),
    metrics={"exact_match": 1.0},
)
PLAYED = Sample(task="game", doc_id="1", kind="agentic", doc="{}", prompt="", trajectory="archive://blobs/game/1.json")
ALL = [CHOSEN, WRITTEN, replace(WRITTEN, filter="flexible-extract", trial=1, schema_version=1), PLAYED]


def test_samples_survive_the_archive(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path / "archive"))
    for half in (ALL[:2], ALL[2:]):
        with archive.transaction() as transaction:
            transaction.append(SAMPLES, samples_batch(half))
    archive.compact()
    assert [sample for batch in archive.snapshot().batches("samples") for sample in samples_of(batch)] == ALL


def test_an_answer_graded_twice_by_one_filter_is_refused_and_by_two_filters_is_two_rows(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path / "archive"))
    with pytest.raises(DuplicateKeyError, match=r"task='gsm8k', doc_id='17', trial=0, filter='strict-match'"), archive.transaction() as one:
        one.append(SAMPLES, samples_batch([WRITTEN, WRITTEN]))
    with archive.transaction() as two:
        two.append(SAMPLES, samples_batch([WRITTEN, replace(WRITTEN, filter="flexible-extract")]))
    assert archive.snapshot().rows("samples") == 2


def test_a_reader_of_this_version_reads_rows_of_a_later_one(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path / "archive"))
    later = Table("samples", SAMPLES.schema.append(pa.field("tokens", pa.int64())), SAMPLES.key)
    with archive.transaction() as transaction:
        transaction.append(SAMPLES, samples_batch([CHOSEN]))
    with archive.transaction() as transaction:
        transaction.append(later, samples_batch([WRITTEN]).append_column("tokens", pa.array([5])))
    assert [sample for batch in archive.snapshot().batches("samples") for sample in samples_of(batch)] == [CHOSEN, WRITTEN]


@pytest.mark.parametrize(
    ("sample", "change", "message"),
    [
        (WRITTEN, {"task": ""}, "field 'task': it is empty"),
        (WRITTEN, {"doc_id": ""}, "field 'doc_id': it is empty"),
        (WRITTEN, {"filter": ""}, "field 'filter': it is empty"),
        (WRITTEN, {"trial": -1}, "field 'trial': trials count from 0"),
        (WRITTEN, {"kind": "essay"}, "field 'kind': it is 'essay'; choose one of"),
        (WRITTEN, {"schema_version": 2}, "field 'schema_version': it is 2 and this reader knows 1"),
        (WRITTEN, {"prompt": "also"}, "give either prompt or messages"),
        (WRITTEN, {"messages": None}, "give either prompt or messages"),
        (WRITTEN, {"messages": ()}, "field 'messages': it has no turn"),
        (WRITTEN, {"choices": CHOSEN.choices}, "field 'choices': only multiple-choice items"),
        (WRITTEN, {"gold_choice": 0}, "field 'gold_choice': only multiple-choice items"),
        (WRITTEN, {"doc": "{"}, "field 'doc': it is no JSON text"),
        (WRITTEN, {"doc": '"\ud800"'}, "field 'doc': it is no JSON text"),
        (WRITTEN, {"trajectory": "1.json"}, "field 'trajectory': '1.json' is no URI"),
        (WRITTEN, {"metrics": {"exact_match": math.nan}}, "field 'metrics': 'exact_match' is nan; leave out"),
        (WRITTEN, {"metrics": {"exact_match": 0.0}}, "field 'grading': its score is 1.0 and metric 'exact_match' is 0.0"),
        (WRITTEN, {"grading": Grading("", "acc", 1.0, True)}, "field 'grading': it names no method"),
        (WRITTEN, {"grading": Grading("x", "acc", math.nan, True)}, "field 'grading': its score is nan"),
        (WRITTEN, {"grading": Grading("x", "acc", 1.0, True, "{")}, "field 'grading': its detail is no JSON"),
        (CHOSEN, {"choices": CHOSEN.choices[:1] if CHOSEN.choices else ()}, "field 'choices': a multiple-choice item has two or more"),
        (CHOSEN, {"choices": (Choice("a", 0.1, True), Choice("b", -1, False))}, "choice 0 has log-likelihood 0.1"),
        (CHOSEN, {"choices": (Choice("a", -1, True), Choice("b", math.nan, False))}, "choice 1 has log-likelihood nan"),
        (CHOSEN, {"model_choice": 2}, "field 'model_choice': it is 2 and there are 2 choices"),
        (CHOSEN, {"gold_choice": -1}, "field 'gold_choice': it is -1"),
        (CHOSEN, {"gold_choice": None}, "field 'gold_choice': a multiple-choice item has a right answer"),
        (CHOSEN, {"model_choice": None}, "field 'model_choice': the item is graded"),
    ],
)
def test_what_breaks_the_contract_is_refused_by_key_and_field(sample: Sample, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSampleError, match=message):
        replace(sample, **change)


def test_an_item_that_was_attempted_and_not_graded_is_a_sample() -> None:
    for sample in (replace(CHOSEN, grading=None, model_choice=None, metrics={}), replace(WRITTEN, grading=None, output=None, metrics={})):
        assert samples_of(samples_batch([sample])) == [sample]


def test_the_schema_of_version_1_is_this_one() -> None:
    """A change of it is a new nullable column, or a new SCHEMA_VERSION: archives of version 1 must stay readable."""
    assert {field.name: str(field.type) for field in SAMPLES.schema} == {
        "schema_version": "int32",
        "task": "string",
        "doc_id": "string",
        "trial": "int32",
        "filter": "string",
        "kind": "string",
        "prompt": "string",
        "messages": "list<item: struct<role: string not null, content: string not null> not null>",
        "choices": "list<item: struct<text: string not null, loglik: double not null, is_greedy: bool not null> not null>",
        "model_choice": "int32",
        "gold_choice": "int32",
        "output": "string",
        "extracted": "string",
        "grading": "struct<method: string not null, metric: string not null, score: double not null, passed: bool not null, "
        "detail: string>",
        "metrics": "map<string, double>",
        "doc": "string",
        "trajectory": "string",
    }
