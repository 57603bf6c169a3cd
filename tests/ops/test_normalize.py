import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.artifacts.artifact import Artifact
from ops.config import NormalizeConfig
from ops.extract.documents import DOCUMENT_SCHEMA
from ops.normalize import NORMALIZED_SCHEMA, NormalizeError, held_out, normalize, shifted_starts
from ops.shards import read_table, shard_name, shard_names
from tests.builders import artifact_of, run_program

Row = tuple[str | None, str]  # text, source_id


def extracted(directory: Path, parts: list[list[Row]]) -> Artifact:
    tables = {shard_name(i, len(parts)): _table(rows) for i, rows in enumerate(parts)}
    size = sum(len((text or "").encode()) for rows in parts for text, _ in rows)
    return artifact_of(directory, tables, {"text_bytes": size})


def _table(rows: list[Row]) -> pa.Table:
    full = [
        (text, source_id, "text/html", "x/1", "warc/a", n, 10, None)
        for n, (text, source_id) in enumerate(sorted(rows, key=lambda row: row[1]))
    ]
    columns = list(zip(*full, strict=True)) or [()] * len(DOCUMENT_SCHEMA)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, DOCUMENT_SCHEMA, strict=True)], schema=DOCUMENT_SCHEMA)


def run(parts: list[list[Row]], directory: Path, **changes: Any) -> Artifact:
    return run_program(normalize, NormalizeConfig(**changes), directory / "out", extracted=extracted(directory / "in", parts))


def documents(artifact: Artifact) -> list[dict[str, Any]]:
    return [row for name in shard_names(artifact) for row in read_table(artifact, name).to_pylist()]


def rows_of(artifact: Artifact, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_table(artifact, name).to_pylist()
    return rows


def capped(text: str) -> str:
    """The oracle: Python's own idea of whitespace."""
    return re.sub(r"(\s{128})\s+", r"\1", text)


def test_the_id_is_the_hash_of_the_text_and_rows_are_sorted_by_it(tmp_path: Path) -> None:
    texts = [f"text {n} é海" for n in range(50)]
    rows = documents(run([[(text, f"u{n}") for n, text in enumerate(texts)]], tmp_path))
    assert {row["text"]: row["id"] for row in rows} == {text: xxhash.xxh3_128_hexdigest(text.encode()) for text in texts}
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)


def test_provenance_is_kept_and_the_schema_is_the_contract(tmp_path: Path) -> None:
    artifact = run([[("text", "http://h.example/")]], tmp_path)
    assert read_table(artifact, "part-00000-of-00001.parquet").schema.equals(NORMALIZED_SCHEMA)
    [row] = documents(artifact)
    assert (row["source_id"], row["media_type"], row["extractor"], row["warc_file"], row["warc_offset"], row["warc_length"]) == (
        "http://h.example/",
        "text/html",
        "x/1",
        "warc/a",
        0,
        10,
    )


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.text(st.sampled_from("ab \t\n\r\v\f\x1c\x1f\x85\xa0\u1680\u2003\u2028\u202f\u3000\u200b"), min_size=100, max_size=400),
        min_size=1,
        max_size=4,
    )
)
def test_runs_of_any_whitespace_are_cut_as_python_would(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    texts = ["x" + text + " " * 200 for text in texts]
    rows = documents(run([[(text, str(n)) for n, text in enumerate(texts)]], tmp_path_factory.mktemp("ws")))
    assert {row["text"] for row in rows} == {capped(text) for text in texts}


def test_a_run_of_exactly_the_limit_stays_and_the_id_is_of_the_cut_text(tmp_path: Path) -> None:
    rows = documents(run([[("a" + " " * 128 + "b", "1"), ("c" + "\u3000" * 129 + "d", "2")]], tmp_path))
    assert {row["text"] for row in rows} == {"a" + " " * 128 + "b", "c" + "\u3000" * 128 + "d"}
    assert all(row["id"] == xxhash.xxh3_128_hexdigest(row["text"].encode()) for row in rows)


def test_texts_that_become_equal_by_the_cut_are_duplicates(tmp_path: Path) -> None:
    artifact = run([[("a" + " " * 200 + "b", "1"), ("a" + " " * 300 + "b", "2")]], tmp_path)
    assert artifact.stats["documents"] == artifact.stats["duplicates"] == 1
    assert artifact.stats["whitespace_cut"] == 2


def test_blank_rows_are_counted_and_kept_apart(tmp_path: Path) -> None:
    artifact = run([[("text", "1"), (" \n\u3000", "2"), ("", "3"), (None, "4"), ("\u200b", "5")]], tmp_path)
    assert [(r["uri"], r["reason"]) for r in rows_of(artifact, "rejects.parquet")] == [(uri, "empty-text") for uri in "234"]
    assert (artifact.stats["rows"], artifact.stats["documents"], artifact.stats["blank"]) == (5, 2, 3)


@pytest.mark.parametrize("rows", [[], [(" ", "1"), ("", "2")]])
def test_a_source_without_text_fails(rows: list[Row], tmp_path: Path) -> None:
    with pytest.raises(NormalizeError, match="has text; look at the source's rejects"):
        run([rows], tmp_path)


def test_of_equal_texts_the_first_by_provenance_survives_whatever_came_first(tmp_path: Path) -> None:
    rows: list[Row] = [("same", "c"), ("same", "a"), ("same", "b"), ("other", "d")]
    for turn, parts in enumerate([[rows], [rows[:1], rows[1:]], [rows[2:], rows[:2]]]):
        artifact = run(parts, tmp_path / str(turn))
        assert {row["text"]: row["source_id"] for row in documents(artifact)} == {"same": "a", "other": "d"}
        assert [row["source_id"] for row in rows_of(artifact, "duplicates.parquet")] == ["b", "c"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["", " ", "one", "two", "three " * 40, "four\u2028" * 30]), st.text("abc", min_size=1, max_size=2)),
        min_size=1,
        max_size=40,
    ),
    st.randoms(use_true_random=False),
)
def test_the_bytes_do_not_depend_on_order_parts_or_memory(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], chance: random.Random
) -> None:
    rows = [*rows, ("always text", "z")]
    full = [(text, source_id, "text/html", "x/1", None, None, None, None) for text, source_id in rows]

    def digest(order: list[tuple[Any, ...]], cuts: int, rows_per_batch: int) -> str:
        directory = tmp_path_factory.mktemp("order")
        pieces = [order[i::cuts] for i in range(cuts)]
        tables = {
            shard_name(i, cuts): pa.Table.from_pylist(
                [dict(zip(DOCUMENT_SCHEMA.names, row, strict=True)) for row in piece], DOCUMENT_SCHEMA
            )
            for i, piece in enumerate(pieces)
        }
        size = sum(len(row[0].encode()) for row in order)
        source = artifact_of(directory / "in", tables, {"text_bytes": size})
        config = NormalizeConfig(shard_bytes=200, held_out_rate=0.5)
        return run_program(normalize, config, directory / "out", extracted=source).digest

    shuffled = list(full)
    chance.shuffle(shuffled)
    assert digest(full, 1, 1 << 20) == digest(shuffled, chance.randint(1, 3), 1)


def test_rows_spread_over_as_many_shards_as_the_input_fills(tmp_path: Path) -> None:
    texts = [f"{n:04d} " + "x" * 95 for n in range(400)]
    artifact = run([[(text, "u") for text in texts]], tmp_path, shard_bytes=10_000)
    assert shard_names(artifact) == tuple(shard_name(i, 4) for i in range(4))
    shards = [read_table(artifact, name)["id"].to_pylist() for name in shard_names(artifact)]
    assert sum(map(len, shards)) == artifact.stats["documents"] == 400
    assert all(ids == sorted(set(ids)) and 60 < len(ids) < 140 for ids in shards)
    assert sorted(i for ids in shards for i in ids) == sorted(xxhash.xxh3_128_hexdigest(text.encode()) for text in texts)


def test_stats_balance(tmp_path: Path) -> None:
    stats = run([[("a", "1"), ("a", "2"), (" ", "3"), ("b", "4")]], tmp_path).stats
    assert stats["rows"] == stats["documents"] + stats["duplicates"] + stats["blank"] == 4
    assert stats["text_bytes"] == 2


def test_normalizing_the_result_again_changes_nothing(tmp_path: Path) -> None:
    first = run([[(f"t {n} " + " " * (100 + n), f"u{n}") for n in range(60)]], tmp_path / "1")
    table = read_table(first, "part-00000-of-00001.parquet").select(DOCUMENT_SCHEMA.names)
    again = artifact_of(tmp_path / "in2", {"part-00000-of-00001.parquet": table}, {"text_bytes": first.stats["text_bytes"]})
    second = run_program(normalize, NormalizeConfig(), tmp_path / "2", extracted=again)
    assert read_table(second, "part-00000-of-00001.parquet").equals(read_table(first, "part-00000-of-00001.parquet"))


IDS = pa.array([xxhash.xxh3_128_hexdigest(str(n).encode()) for n in range(20_000)])


def test_the_held_out_share_is_the_rate_and_depends_on_salt_and_id_alone() -> None:
    first = held_out(IDS, "salt", 0.05).to_numpy(zero_copy_only=False)
    assert abs(first.mean() - 0.05) < 5 * (0.05 * 0.95 / len(IDS)) ** 0.5  # five standard deviations of a fair draw
    assert (held_out(IDS.slice(7_000), "salt", 0.05).to_numpy(zero_copy_only=False) == first[7_000:]).all()
    other = held_out(IDS, "other", 0.05).to_numpy(zero_copy_only=False)
    assert 0 < (first & other).sum() < 0.2 * first.sum()


def test_a_smaller_rate_holds_out_a_subset() -> None:
    small = held_out(IDS, "salt", 0.01).to_numpy(zero_copy_only=False)
    large = held_out(IDS, "salt", 0.05).to_numpy(zero_copy_only=False)
    assert (small <= large).all()
    assert not held_out(IDS, "salt", 0.0).to_numpy(zero_copy_only=False).any()
    assert held_out(IDS, "salt", 1.0).to_numpy(zero_copy_only=False).all()


@given(st.text(" \n\u3000ab", max_size=60), st.integers(1, 4), st.lists(st.integers(0, 60), max_size=4))
def test_pages_still_start_where_they_did_after_whitespace_was_cut(text: str, longest: int, starts: list[int]) -> None:
    """Against the definition: what lies before a page's start, shortened by itself where the cut lies within it."""
    kept = [at for at in range(len(text)) if not text[at].isspace() or not text[max(0, at - longest) : at + 1].isspace() or at < longest]
    starts = sorted(min(start, len(text)) for start in starts)
    assert shifted_starts(text, starts, longest) == [sum(at < start for at in kept) for start in starts]


def test_the_pages_of_a_document_move_with_its_text(tmp_path: Path) -> None:
    text = "one" + " " * 50 + "two\n\nthree"
    row = dict.fromkeys(DOCUMENT_SCHEMA.names) | {
        "text": text,
        "source_id": "a",
        "page_starts": [0, text.index("two"), text.index("three")],
    }
    rows = pa.Table.from_pylist([row, {**row, "text": "none", "page_starts": None}], DOCUMENT_SCHEMA)
    source = artifact_of(tmp_path / "in", {shard_name(0, 1): rows}, {"text_bytes": 100})
    found = run_program(normalize, NormalizeConfig(max_whitespace_run=2), tmp_path / "out", extracted=source)
    pages = {row["text"]: row["page_starts"] for row in documents(found)}
    assert pages == {"one  two\n\nthree": [0, 5, 10], "none": None}
