"""Task files: what is wrong with one is told in a sentence that names file and field, before any model is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.archive.records import unescape
from ops.evaluation.tasks.items import TaskItems
from ops.evaluation.tasks.task import TaskError, load_task

ODD = "a\u2028b\u2029c\u0085d\u000be\u000cf 🦆 \ud800 g"
ROWS: list[dict[str, Any]] = [
    {"id": "x", "query": "one?", "choices": ["yes", "no"], "gold": 1},
    {"id": "y", "query": ODD, "choices": ["a", "b"], "gold": 0},
]
TASK: dict[str, Any] = {
    "task": "t",
    "output_type": "multiple_choice",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "t.jsonl"}},
    "doc_to_text": "Q: {{query}}",
    "doc_to_choice": "choices",
    "doc_to_target": "gold",
    "metric_list": [{"metric": "acc"}],
    "metadata": {"id_field": "id"},
}


def written(folder: Path, rows: list[Any] = ROWS, **fields: Any) -> Path:
    (folder / "t.jsonl").write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    path = folder / "t.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in {**TASK, **fields}.items() if value is not None}))
    return path


def items_of(path: Path) -> TaskItems:
    return TaskItems(load_task(path), path.parent)


def test_items_are_the_rows_between_line_feeds_whatever_else_ends_a_line(tmp_path: Path) -> None:
    first, second = items_of(written(tmp_path)).items()
    assert (first.doc_id, first.context, first.choices, first.gold) == ("x", "Q: one?", ("yes", "no"), 1)
    assert unescape(second.context) == f"Q: {ODD}"
    second.context.encode()  # nothing that no tokenizer could read


def test_the_data_have_a_fingerprint_that_no_path_moves(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = items_of(written(tmp_path / "a")), items_of(written(tmp_path / "b"))
    assert one.fingerprint == other.fingerprint
    assert items_of(written(tmp_path / "b", ROWS[:1])).fingerprint != one.fingerprint


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"doc_to_txt": "x"}, r"t.yaml: doc_to_txt: unknown field"),
        ({"doc_to_text": None}, r"t.yaml: doc_to_text: it is missing"),
        ({"output_type": "multiple"}, r"t.yaml: output_type: "),
        ({"dataset_path": "hub/name"}, r"t.yaml: dataset_path: "),
        ({"metric_list": [{"metric": "perplexity"}]}, r"metric_list: perplexity is no metric of multiple_choice; choose among acc"),
        ({"metric_list": [{"metric": "acc"}, {"metric": "acc"}]}, r"metric_list names acc twice"),
        ({"test_split": "dev"}, r"test_split is 'dev' and dataset_kwargs.data_files has test"),
        ({"num_fewshot": 2}, r"num_fewshot is 2 and fewshot_split is missing"),
        ({"doc_to_text": "Q: {{query"}, r"t.yaml: doc_to_text: no Jinja template"),
        ({"doc_to_choice": None}, r"doc_to_choice belongs to multiple_choice"),
        ({"generation_kwargs": {"do_sample": True}}, r"generation_kwargs.do_sample"),
        ({"metric_list": []}, r"t.yaml: metric_list: it is empty; give at least 1$"),
        ({"metric_list": [{"metric": "bleu"}]}, r"t.yaml: metric_list.0.metric: must be 'acc'.*\(found 'bleu'\)$"),
        (
            {"metric_list": [{"metric": "exact_match", "regexes_to_ignore": ["("]}]},
            r"regexes_to_ignore.0: no regular expression \(missing \)",
        ),
        (
            {"filter_list": [{"name": "a", "filter": [{"function": "regex", "regex_pattern": "("}]}]},
            r"filter_list.0.filter.0.regex.regex_pattern: no regular expression",
        ),
        ({"doc_to_text": "{{query|nosuch}}"}, r"t.yaml: doc_to_text: no Jinja template \(No filter named 'nosuch'\)"),
    ],
)
def test_a_task_file_that_is_wrong_names_its_field(tmp_path: Path, fields: dict[str, Any], answer: str) -> None:
    with pytest.raises(TaskError, match=answer):
        load_task(written(tmp_path, **fields))


@pytest.mark.parametrize(
    ("rows", "fields", "answer"),
    [
        ([{"id": "x", "choices": ["a", "b"], "gold": 0}], {}, r"t.jsonl, item 1: column 'query' is missing, and doc_to_text reads it"),
        ([*ROWS, ROWS[0]], {}, r"t.jsonl: id = 'x' occurs twice"),
        ([], {}, r"t.jsonl: no item"),
        ([{**ROWS[0], "gold": 2}], {}, r"item x: doc_to_target gives 2, which is none of its 2 choices"),
        ([{**ROWS[0], "choices": ["only"]}], {}, r"item x: doc_to_choice gives .*must be two texts or more"),
        ([["no", "object"]], {}, r"t.jsonl, item 1: a list, and items are objects"),
        ([None], {}, r"t.jsonl, item 1: null, and items are objects"),
        ([{**ROWS[0], "gold": None}], {"metadata": {}}, r"t.jsonl, item 1: doc_to_target gives None"),
        (ROWS, {"doc_to_text": "{{query + 1}}"}, r"t.jsonl, item x: doc_to_text: can only concatenate str"),
        (
            ROWS,
            {"doc_to_text": "{{query.__class__.__mro__}}"},
            r"item x: doc_to_text: access to attribute '__class__' of 'str' object is unsafe",
        ),
        (ROWS, {"fewshot_split": "test", "num_fewshot": 3}, r"2 examples and num_fewshot is 3"),
        (ROWS, {"metadata": {"id_field": "uid"}}, r"item 1: column 'uid' is missing, and metadata.id_field names it"),
        (ROWS, {"dataset_kwargs": {"data_files": {"test": "none.jsonl"}}}, r"none.jsonl: no such file, and dataset_kwargs.data_files.test"),
    ],
)
def test_data_that_can_not_be_asked_names_file_item_and_field(tmp_path: Path, rows: list[Any], fields: dict[str, Any], answer: str) -> None:
    with pytest.raises(TaskError, match=answer):
        list(items_of(written(tmp_path, rows, **fields)).items())


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (b"task: one\ntask: two\n", r"t.yaml, line 2: task is written twice"),
        (b"task: one\nmetric_list:\n- {metric: acc, metric: acc_norm}\n", r"t.yaml, line 3: metric is written twice"),
        (b"task: one\ndoc_to_text: !function code.run\n", r"t.yaml, line 2: no YAML of plain values .*!function"),
        (b"task: [one", r"t.yaml, line 1: no YAML"),
        (b"", r"t.yaml: it is empty; write the fields of a task"),
        (b"- task", r"t.yaml: it is no list of fields"),
        (b"task: \xe9", r"t.yaml: can't be read .*; save it as UTF-8"),
    ],
)
def test_a_file_that_is_no_plain_yaml_says_where(tmp_path: Path, text: bytes, answer: str) -> None:
    (tmp_path / "t.yaml").write_bytes(text)
    with pytest.raises(TaskError, match=answer):
        load_task(tmp_path / "t.yaml")


def test_a_field_that_overrides_what_it_merges_is_not_written_twice(tmp_path: Path) -> None:
    path = written(tmp_path)
    merged = "metadata: {a: &a {x: 1, y: 2}, b: &b {<<: *a, x: 3}, c: {<<: *b, x: 4}}"
    path.write_text(path.read_text().partition("metadata:")[0] + merged + path.read_text().partition("id_field: id")[2])
    assert load_task(path).metadata["c"] == {"x": 4, "y": 2}


def test_a_broken_line_names_its_number(tmp_path: Path) -> None:
    path = written(tmp_path)
    (tmp_path / "t.jsonl").write_bytes(json.dumps(ROWS[0]).encode() + b"\n{broken\n")
    with pytest.raises(TaskError, match=r"t.jsonl, line 2: not JSON"):
        items_of(path)
