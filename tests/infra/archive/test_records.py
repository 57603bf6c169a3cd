"""Records end at LF, and every string that JSON can write comes back as it was."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.archive.archive import Archive
from infra.archive.errors import MalformedRecordError
from infra.archive.jsonl import read_jsonl, write_jsonl
from infra.archive.records import escape, text_field, to_batch, to_records, unescape
from infra.archive.tables import Table

AWKWARD = "\u2028a\u2029b\u0085c\x0bd\x0ce\x1cf\r\tg\0h\U0001f600i\uffffj\ufeff"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        text_field("text"),
        text_field("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        text_field("metrics", pa.map_(pa.string(), pa.float64())),
        pa.field("plain", pa.string()),
        pa.field("right", pa.bool_()),
    ]
)
NOTES = Table("notes", SCHEMA, key=("id",))
any_text = st.text(st.characters() | st.sampled_from("\\ud8a0\ud800\udfff")) | st.sampled_from(
    ["\\ud800", "\\\\udfff", "\\\ud83d", AWKWARD]
)
finite = st.floats(allow_nan=False)
records = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "text": st.none() | any_text,
        "messages": st.none() | st.lists(st.fixed_dictionaries({"role": st.none() | any_text, "content": any_text}), max_size=3),
        "metrics": st.none() | st.dictionaries(any_text, st.none() | finite, max_size=3),
        "plain": st.none() | st.text(st.characters(codec="utf-8")),
        "right": st.none() | st.booleans(),
    }
)


def read(data: bytes, **options: Any) -> list[dict[str, Any]]:
    return [record for batch in read_jsonl(io.BytesIO(data), SCHEMA, **options) for record in to_records(batch)]


@settings(deadline=None)
@given(any_text)
def test_any_string_is_stored_as_utf8_and_comes_back(text: str) -> None:
    stored = escape(text)
    stored.encode()
    assert unescape(stored) == text


@settings(deadline=None)
@given(any_text, any_text)
def test_two_strings_never_share_a_stored_form(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)


@pytest.mark.parametrize("text", ["", AWKWARD, "C:\\users\\ada", "\\u2028", "\\ude", "\\\\n", "ud800", "\\uD800"])
def test_ordinary_text_is_stored_as_it_is(text: str) -> None:
    assert escape(text) == text


def test_the_stored_form_of_a_surrogate_is_its_json_escape() -> None:
    assert escape("a\ud800") == "a\\ud800"
    assert escape("a\\ud800") == "a\\\\ud800"
    assert escape("\\\ud800") == "\\\\\\ud800"


@settings(deadline=None)
@given(st.lists(records, max_size=5))
def test_records_survive_arrow(rows: list[dict[str, Any]]) -> None:
    assert to_records(to_batch(rows, SCHEMA)) == rows


@settings(deadline=None)
@given(st.lists(records, min_size=1, max_size=5))
def test_records_survive_json_lines(rows: list[dict[str, Any]]) -> None:
    stream = io.BytesIO()
    assert write_jsonl([to_batch(rows, SCHEMA)], stream) == len(rows)
    written = stream.getvalue()
    assert written.isascii()
    assert len(written.decode().splitlines()) == len(rows)  # even the splitter that cuts at U+2028
    assert read(written, rows=2) == json.loads(json.dumps(rows))  # json joins two surrogates that make a pair


def test_lines_end_at_lf_alone() -> None:
    rows = [{"id": 1, "text": AWKWARD}, {"id": 2, "text": "\u2028"}]
    raw = "\n".join(json.dumps(row, ensure_ascii=False).replace("\\u000b", "\x0b").replace("\\f", "\x0c") for row in rows)
    assert "\x0b" in raw
    assert "\u2028" in raw
    found = read(raw.encode() + b"\r\n\n")
    assert [(row["id"], row["text"]) for row in found] == [(1, AWKWARD), (2, "\u2028")]


def test_a_document_with_everything_survives_the_archive(tmp_path: Path) -> None:
    document = {
        "id": 1,
        "text": AWKWARD + "\ud800 \udfff\\ud800",
        "messages": [{"role": "user", "content": "\udc00"}],
        "metrics": {"x": 0.1},
    }
    line = json.dumps(document).encode() + b"\n"
    archive = Archive(str(tmp_path / "archive"))
    for number in range(2):
        with archive.transaction() as transaction:
            transaction.append(NOTES, read_jsonl(io.BytesIO(line.replace(b'"id": 1', b'"id": %d' % number)), SCHEMA))
    archive.compact()
    stream = io.BytesIO()
    write_jsonl(archive.snapshot().batches("notes"), stream)
    found = [json.loads(one) for one in stream.getvalue().split(b"\n")[:-1]]
    assert [row["text"] for row in found] == [document["text"]] * 2
    assert found[0]["messages"] == document["messages"]


def test_numbers_that_json_does_not_have_survive_it() -> None:
    stream = io.BytesIO()
    metrics = {"nan": math.nan, "most": math.inf, "least": -math.inf}
    write_jsonl([to_batch([{"id": 1, "metrics": metrics}], SCHEMA)], stream)
    assert json.loads(stream.getvalue(), parse_constant=pytest.fail)["metrics"]["most"] == "Infinity"
    (row,) = read(stream.getvalue())
    assert math.isnan(row["metrics"].pop("nan"))
    assert row["metrics"] == {"most": math.inf, "least": -math.inf}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id": 1', r"items\.jsonl, line 2: it is no JSON .* was it cut\?"),
        (b"\xff", "line 2: it is no JSON"),
        (b"[1]", "line 2: it is list, not an object"),
        (b'{"id": 1, "x": 2}', "line 2: field 'x' is not a column"),
        (b'{"text": "a"}', "line 2, field 'id': it is required and missing or null"),
        (b'{"id": 1.5}', "line 2, field 'id': it should be int64 and is 1.5"),
        (b'{"id": true}', "line 2, field 'id': it should be int64 and is True"),
        (b'{"id": 9223372036854775808}', "line 2, field 'id': .*correct the value"),
        (b'{"id": 1, "right": 1}', "line 2, field 'right': it should be bool and is 1"),
        (b'{"id": 1, "plain": "\\ud800"}', r"line 2, field 'plain': it has the unpaired surrogate U\+D800.* text_field"),
        (b'{"id": 1, "messages": "ab"}', "line 2, field 'messages': it should be list"),
        (b'{"id": 1, "messages": [{"name": "x"}]}', "line 2, field 'messages', item 0: it has no field 'name'"),
        (b'{"id": 1, "metrics": {"a": "0.5"}}', r"line 2, field 'metrics'\['a'\]: it should be double and is '0.5'"),
        (b'{"id": 1, "metrics": {"a": 9007199254740993}}', "it should be double and is 9007199254740993"),
    ],
)
def test_a_bad_record_is_refused_by_file_line_and_field(line: bytes, message: str) -> None:
    with pytest.raises(MalformedRecordError, match=message):
        read(b'{"id": 0}\n' + line + b"\n", name="items.jsonl")


def test_a_type_without_a_form_in_json_is_refused() -> None:
    schema = pa.schema([("raw", pa.binary())])
    with pytest.raises(MalformedRecordError, match="column 'raw': columns of type binary have no form in records"):
        to_records(pa.RecordBatch.from_pydict({"raw": [b"x"]}, schema))
    with pytest.raises(MalformedRecordError, match="append them as Arrow"):
        to_batch([{"raw": "x"}], schema)
