"""Slices that can't be compared are refused, and probes are what real parsers read."""

import csv
import io
import json
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from infra.archive.records import unescape
from ops.evaluation.perplexity.config import PerplexityConfig, PerplexityGapConfig, TextFiles
from ops.evaluation.perplexity.long_context import long_slices
from ops.evaluation.perplexity.probes.families import PROBES, probe_slices
from ops.evaluation.perplexity.probes.patches import BadPatchError, apply, unified_diffs
from ops.evaluation.perplexity.providers import file_slice
from ops.evaluation.perplexity.slices import Slice, SliceError, TextDocument, checked, limited, supervised

ODD = "a\u2028b\u2029c\u0085d\u000be\u000cf 🦆 \ud800 g"


def raw(key: str, *texts: str) -> Slice:
    return Slice(key, [TextDocument(f"d{n}", text) for n, text in enumerate(texts)], "raw", "test")


@pytest.mark.parametrize(
    ("slices", "answer"),
    [
        ([raw("held_out/code", "x"), raw("held_out/code", "y")], "held_out/code: two providers give it"),
        ([raw("nosuchlevel", "x")], "a key is lower-case names with slashes"),
        ([raw("a/b")], "a/b: it has no document"),
        ([raw("a/b", "x", "")], "document 'd1': it has no text"),
        ([raw("a/b", "same"), raw("a/c", "same")], "it is also slice a/b, document 'd0'"),
        ([Slice("a/b", [TextDocument("d", "ü", (1, 2))], "supervised", "test")], "begins or ends inside a character"),
        ([Slice("a/b", [TextDocument("d", "x", (0, 2))], "supervised", "test")], "is no part of its 1 bytes"),
        ([Slice("a/b", [TextDocument("d", "x", (0, 1))], "raw", "test")], "the slice's loss is raw"),
    ],
)
def test_a_slice_that_is_wrong_names_key_and_document(slices: list[Slice], answer: str) -> None:
    with pytest.raises(SliceError, match=answer):
        checked(slices)


def test_a_document_is_cut_between_characters_and_never_in_its_target() -> None:
    kept = limited([TextDocument("a", "xü" * 10), supervised("b", "x" * 20, "y"), TextDocument("c", "z")], 2, 8)
    assert [(one.name, one.text, one.is_cut) for one in kept] == [("a", "xüxüx", True), ("c", "z", False)]


def test_rows_of_text_and_of_targets_are_read_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "raw.jsonl").write_text(json.dumps({"text": ODD}) + "\n")
    (tmp_path / "supervised.jsonl").write_text(json.dumps({"input": ODD, "target": " ü🦆"}) + "\n")
    config = PerplexityConfig()
    one = file_slice(TextFiles(key="a/raw", root=str(tmp_path), glob="raw.jsonl", source="test"), config)
    other = file_slice(TextFiles(key="a/supervised", root=str(tmp_path), glob="supervised.jsonl", source="test"), config)
    assert unescape(one.documents[0].text) == ODD
    assert one.documents[0].target is None
    start, end = other.documents[0].target or (0, 0)
    assert other.documents[0].text.encode()[start:end].decode() == " ü🦆"
    assert other.loss == "supervised"
    (tmp_path / "raw.jsonl").write_text('{"body": "x"}\n')
    with pytest.raises(SliceError, match=r"raw.jsonl, row 1: it has neither a text nor an input and a target"):
        file_slice(TextFiles(key="a/raw", root=str(tmp_path), glob="raw.jsonl", source="test"), config)


def test_probes_are_the_same_again_and_no_slice_moves_another() -> None:
    first, again, other = probe_slices(0, 4), probe_slices(0, 4), probe_slices(1, 4)
    assert first == again
    assert [one.key for one in first] == list(PROBES)
    assert all(a.documents != b.documents for a, b in zip(first, other, strict=True))
    assert len(checked(first)) == len(PROBES)


def whole_and_target(key: str) -> Iterator[tuple[str, str]]:
    for document in next(one for one in probe_slices(3, 12) if one.key == key).documents:
        start, end = document.target or (0, 0)
        yield document.text, document.text.encode()[start:end].decode()


def test_delimiters_close_to_json_and_tables_are_csv_and_times_are_times() -> None:
    for text, target in whole_and_target("probe/delimiter/json"):
        for line in text.splitlines():
            json.loads(line)
        with pytest.raises(json.JSONDecodeError):
            json.loads(text.removesuffix(target).splitlines()[-1])
    for text, _ in whole_and_target("probe/machine_record/csv"):
        assert {len(row) for row in csv.reader(io.StringIO(text), strict=True)} == {4}
    for text, target in whole_and_target("probe/machine_record/log"):
        assert datetime.fromisoformat(target) > datetime.fromisoformat(text.split("\n")[-2].split()[0])


def test_a_diff_is_one_that_git_applies(tmp_path: Path) -> None:
    for number, (text, _) in enumerate(whole_and_target("probe/patch/unified")):
        before, rest = text.split("\n# changed to\n")
        after, diff = rest.split("\n# as a diff\n")
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "module.py").write_text(before)
        (folder / "change.diff").write_text(diff)
        subprocess.run(
            ["git", "apply", "--unsafe-paths", "change.diff"],
            cwd=folder,
            check=True,
            env={"GIT_CEILING_DIRECTORIES": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )
        assert (folder / "module.py").read_text() == after


def test_a_diff_that_does_not_fit_its_file_is_found_out() -> None:
    import difflib

    before, after = ["a\n", "b\n", "c\n"], ["a\n", "x\n", "c\n"]
    diff = list(difflib.unified_diff(before, after))
    assert apply(before, diff) == after
    for wrong in (["a\n", "B\n", "c\n"], ["b\n"]):
        with pytest.raises(BadPatchError, match="of the file is not"):
            apply(wrong, diff)
    with pytest.raises(BadPatchError, match="ends before"):
        apply(before, [*diff[:2], "@@ -1,3 +1,4 @@\n", *diff[3:]])
    assert len(list(unified_diffs(Random(0), 3))) == 3


def test_long_documents_are_shown_whole_and_asked_about_right_before_the_answer() -> None:
    config = PerplexityConfig(min_long_document_bytes=100, max_long_document_bytes=400, max_long_documents=2)
    documents = [TextDocument(f"d{n}", "line of text\n" * n) for n in (2, 10, 20, 60)]
    whole, asked = long_slices(config, documents)
    assert [one.name for one in whole.documents] == ["long-d60", "long-d20"]
    assert [one.is_cut for one in whole.documents] == [True, False]
    for one in asked.documents:
        start, end = one.target or (0, 0)
        answer = one.text.encode()[start:end].decode()
        assert one.text.count(answer.strip()) == 2  # once where it was planted, once as the answer
        assert one.text[: -len(answer)].endswith(" is")
    assert asked.fidelity == "low"
    assert long_slices(config, documents[:1]) == []


def test_a_run_is_no_repetition_of_itself() -> None:
    with pytest.raises(ValueError, match="names a run twice"):
        PerplexityGapConfig(repeats={"a": ("a",)})
