"""Repeated paragraphs as spans: the right ones, in the right bytes, whatever carries them."""

import pickle
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infra.artifacts.artifact import Artifact
from ops.dedup import paragraphs
from ops.dedup.config import ParagraphDedupConfig
from ops.dedup.numbering import Numbering
from ops.dedup.paragraphs import MarkShard, ParagraphAlarmError, SendParagraphs, paragraph_duplicates
from ops.dedup.spans import SPANS, without_spans
from ops.hashing.blocks import column_blocks
from ops.hashing.columns import TextColumn
from ops.shards import read_table, shard_names
from tests.builders import run_program
from tests.ops.normalized import id_of, normalized


def mark(directory: Path, sources: Mapping[str, Artifact], **config: Any) -> Artifact:
    settings = ParagraphDedupConfig.model_validate({"min_chars": 10, "alarm_share": 1.0, **config})
    return run_program(paragraph_duplicates, settings, directory, normalized=sources)


def rows_of(result: Artifact, source: str) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for name in shard_names(result, source) for row in read_table(result, name).to_pylist()}


def left_of(result: Artifact, source: str, text: str) -> str:
    """The text without its spans."""
    spans = pa.array([rows_of(result, source)[id_of(text)]["spans"]], SPANS)
    return str(without_spans(pa.array([text]), spans)[0].as_py())


def lines(text: str) -> list[tuple[int, int, str]]:
    """(start, end, content) of every line, in bytes, as Python splits them at newlines."""
    found, at = [], 0
    for line in re.findall(rb"[^\n]*\n|[^\n]+", text.encode()):
        found.append((at, at + len(line), line.strip(bytes(range(33))).decode()))
        at += len(line)
    return found


def blocks(text: str) -> list[tuple[int, int, str]]:
    found, at = [], 0
    data = text.encode()
    for match in re.finditer(rb"\n[\x00-\x20]*\n", data):
        end = match.end()
        found.append((at, end, data[at:end].strip(bytes(range(33))).decode()))
        at = end
    if at < len(data):
        found.append((at, len(data), data[at:].strip(bytes(range(33))).decode()))
    return found


def random_texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    pool = [
        "a paragraph of words",
        "größer als zuvor im Jahr",
        "海は静かです。港は静かです。",
        "short",
        "another one of them",
        "  indented like code",
        "",
    ]
    pool += [f"number {n} of a hundred or so" for n in range(20)]
    return [
        "".join(rng.choice(pool) + rng.choice(["\n", "\n\n", " \n\t\n", "\r\n", ""]) for _ in range(rng.randint(0, 12)))
        for _ in range(count)
    ]


@pytest.mark.parametrize(("by_line", "split"), [(True, lines), (False, blocks)])
def test_paragraphs_are_what_newlines_or_blank_lines_part(by_line: bool, split: Any) -> None:
    texts = [*random_texts(200, 1), "", "\n", " \n \n x y z w v u t s\n\n\n\ntail of some size"]
    column = TextColumn.of(pa.array(texts))
    rows, starts, ends, high, low, sizes = (found.tolist() for found in column_blocks(column.data, column.offsets, by_line, 10))
    expected = [(row, a, b, text) for row, whole in enumerate(texts) for a, b, text in split(whole) if len(text) >= 10]
    assert list(zip(rows, starts, ends, sizes, strict=True)) == [(row, a, b, len(text)) for row, a, b, text in expected]
    hashes = {(text, pair) for (_, _, _, text), pair in zip(expected, zip(high, low, strict=True), strict=True)}
    assert len(hashes) == len({text for text, _ in hashes}) == len({pair for _, pair in hashes})


@pytest.mark.parametrize("shards", [1, 3])
def test_spans_agree_with_a_dictionary(tmp_path: Path, shards: int) -> None:
    texts = {source: random_texts(60, seed) for source, seed in (("b", 2), ("a", 3), ("c", 4))}
    sources = {source: normalized(tmp_path / source, rows, shards=shards) for source, rows in texts.items()}
    result = mark(tmp_path / "out", sources)
    first: dict[str, tuple[str, str]] = {}
    for source in sorted(texts):
        found = rows_of(result, source)
        for text in sorted(set(texts[source]), key=id_of):
            expected: list[dict[str, Any]] = []
            for start, end, content in lines(text):
                if len(content) < 10:
                    continue
                keeper = first.setdefault(content, (source, id_of(text)))
                if keeper != (source, id_of(text)) or any(content == c for a, _, c in lines(text) if a < start):
                    expected.append({"start": start, "end": end, "survivor_source": keeper[0], "survivor_id": keeper[1]})
            assert found[id_of(text)]["spans"] == expected
            assert found[id_of(text)]["removed_bytes"] == sum(span["end"] - span["start"] for span in expected)


def test_every_paragraph_is_kept_once(tmp_path: Path) -> None:
    texts = random_texts(120, 5)
    sources = {"a": normalized(tmp_path / "a", texts[:60]), "b": normalized(tmp_path / "b", texts[60:])}
    result = mark(tmp_path / "out", sources)
    kept = [
        c
        for s, some in (("a", texts[:60]), ("b", texts[60:]))
        for t in set(some)
        for _, _, c in lines(left_of(result, s, t))
        if len(c) >= 10
    ]
    assert sorted(kept) == sorted({c for text in texts for _, _, c in lines(text) if len(c) >= 10})


def test_a_held_out_document_keeps_its_paragraphs_and_is_left_whole(tmp_path: Path) -> None:
    train, held_out = "first line of all\nshared by both of them\n", "shared by both of them\nshared by both of them\n"
    sources = {"a": normalized(tmp_path / "a", [train]), "b": normalized(tmp_path / "b", [], held_out=[held_out])}
    result = mark(tmp_path / "out", sources)
    assert left_of(result, "a", train) == "first line of all\n"
    assert rows_of(result, "a")[id_of(train)]["spans"][0]["survivor_source"] == "b"
    assert rows_of(result, "b")[id_of(held_out)]["spans"] == []


def test_short_lines_stay_however_often_they_come(tmp_path: Path) -> None:
    text = "}\n" * 50 + "return\n" * 9
    assert left_of(mark(tmp_path / "out", {"a": normalized(tmp_path / "a", [text])}), "a", text) == text


def test_what_each_source_loses_is_reported_and_too_much_raises_an_alarm(tmp_path: Path) -> None:
    footer = "the same footer on every page"
    pages = [f"page number {n} has words\n{footer}" for n in range(4)]
    sources = {
        "a": normalized(tmp_path / "a", [footer]),
        "b": normalized(tmp_path / "b", pages),
        "c": normalized(tmp_path / "c", [footer + "\n"]),
    }
    result = mark(tmp_path / "out", sources, alarm_share=0.5)
    size = len(footer)
    assert result.stats["sources"]["b"] == {
        **{"documents": 4, "documents_with_repeats": 4, "documents_emptied": 0, "paragraphs": 8, "paragraphs_removed": 4},
        **{"bytes": sum(map(len, pages)), "bytes_removed": 4 * size, "removed_share": round(4 * size / sum(map(len, pages)), 6)},
    }
    assert (result.stats["paragraphs_removed"], result.stats["bytes_removed"]) == (5, 5 * size + 1)
    assert [alarm.partition(" loses")[0] for alarm in result.stats["alarms"]] == ["b", "c"]
    assert result.stats["alarms"][1].endswith("1 documents are left empty)")
    with pytest.raises(ParagraphAlarmError, match=r"c loses 30 of 30 bytes .* Read the samples"):
        mark(tmp_path / "strict", sources, alarm_share=0.5, strict=True)


def test_every_shard_has_a_file_with_all_its_rows(tmp_path: Path) -> None:
    sources = {"a": normalized(tmp_path / "a", random_texts(9, 1), shards=3), "empty": normalized(tmp_path / "e", [])}
    result = mark(tmp_path / "out", sources)
    for source, artifact in sources.items():
        assert shard_names(result, source) == tuple(f"{source}/{name}" for name in shard_names(artifact))
        for name in shard_names(artifact):
            assert read_table(result, f"{source}/{name}")["id"].equals(read_table(artifact, name)["id"])


def test_bytes_depend_on_neither_buckets_nor_the_order_of_the_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More workers have more buckets; that processes change nothing is proved of every stage in `tests.ops.dataflow`."""
    sources = {name: normalized(tmp_path / name, random_texts(40, n), shards=2) for n, name in enumerate("abc")}
    one = mark(tmp_path / "one", sources)
    monkeypatch.setattr(paragraphs, "BYTES_PER_BUCKET", 20_000)
    runs = [one, mark(tmp_path / "two", dict(reversed(sources.items())))]
    assert len(list((tmp_path / "two").glob("scratch/dataflow/paragraphs-*/*"))) > len(
        list((tmp_path / "one").glob("scratch/dataflow/paragraphs-*/*"))
    )
    functions = (SendParagraphs(True, 10, (0,)), MarkShard(sources, Numbering.of(sources), True, 10))
    assert pickle.loads(pickle.dumps(functions)) == functions
    assert runs[0].digest == runs[1].digest
    assert runs[0].stats == runs[1].stats


def test_samples_show_marked_paragraphs(tmp_path: Path) -> None:
    pages = [f"page number {n} has words\nthe same footer on every page" for n in range(9)]
    samples = mark(tmp_path / "out", {"a": normalized(tmp_path / "a", pages, shards=3)}, samples=4).read_json("samples.json")
    assert [sample["text"] for sample in samples] == ["the same footer on every page"] * 4
    assert {sample["survivor_id"] for sample in samples} == {min(map(id_of, pages))}


def test_no_source_at_all_gives_an_empty_artifact(tmp_path: Path) -> None:
    assert mark(tmp_path / "out", {}).stats["documents"] == 0
