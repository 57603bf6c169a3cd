"""Exact duplicates across sources."""

from pathlib import Path

import pytest

from infra.artifacts.artifact import Artifact
from ops.config import ExactDedupConfig
from ops.dedup.exact import exact_duplicates
from ops.shards import read_table, shard_names
from tests.builders import run_program
from tests.ops.normalized import id_of, normalized


def removed(result: Artifact) -> dict[tuple[str, str], tuple[str, str]]:
    """(source, id) of each flagged document -> (source, id) of its survivor."""
    found = {}
    for name in result.names:
        source, _, _ = name.rpartition("/")
        for row in read_table(result, name).to_pylist():
            assert row["is_duplicate"] == (row["survivor_id"] is not None) == (row["survivor_source"] is not None)
            if row["is_duplicate"]:
                found[source, row["id"]] = (row["survivor_source"], row["survivor_id"])
    return found


def test_the_first_source_keeps_a_text_that_several_hold(tmp_path: Path) -> None:
    sources = {
        "b": normalized(tmp_path / "b", ["shared", "only b"]),
        "a": normalized(tmp_path / "a", ["shared", "only a"], shards=2),
        "c": normalized(tmp_path / "c", ["shared", "only b"]),
    }
    result = run_program(exact_duplicates, ExactDedupConfig(), tmp_path / "out", normalized=sources)
    shared, only_b = id_of("shared"), id_of("only b")
    assert removed(result) == {("b", shared): ("a", shared), ("c", shared): ("a", shared), ("c", only_b): ("b", only_b)}
    assert result.stats["duplicates"] == 3
    assert result.stats["sources"]["c"] == {"documents": 2, "duplicates": 2}


def test_a_held_out_copy_survives_before_any_train_copy(tmp_path: Path) -> None:
    sources = {"a": normalized(tmp_path / "a", ["text"]), "b": normalized(tmp_path / "b", [], held_out=["text"])}
    result = run_program(exact_duplicates, ExactDedupConfig(), tmp_path / "out", normalized=sources)
    assert removed(result) == {("a", id_of("text")): ("b", id_of("text"))}


def test_every_shard_has_a_file_with_all_its_rows(tmp_path: Path) -> None:
    sources = {"a": normalized(tmp_path / "a", [f"{n}" for n in range(9)], shards=3), "empty": normalized(tmp_path / "e", [])}
    result = run_program(exact_duplicates, ExactDedupConfig(), tmp_path / "out", normalized=sources)
    for source, artifact in sources.items():
        assert shard_names(result, source) == tuple(f"{source}/{name}" for name in shard_names(artifact))
        for name in shard_names(artifact):
            assert read_table(result, f"{source}/{name}")["id"].equals(read_table(artifact, name)["id"])


@pytest.mark.parametrize(("shards", "rows_per_part"), [(1, 4_000_000), (4, 4_000_000), (2, 9)])
def test_one_survivor_per_text_agrees_with_a_dict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int, rows_per_part: int) -> None:
    monkeypatch.setattr("ops.dedup.shuffle.ROWS_PER_PART", rows_per_part)
    texts = {source: [f"text {n}" for n in range(start, start + 40)] for source, start in (("a", 0), ("b", 20), ("c", 30))}
    sources = {source: normalized(tmp_path / source, rows, shards=shards) for source, rows in texts.items()}
    result = run_program(exact_duplicates, ExactDedupConfig(), tmp_path / "out", normalized=sources)
    first: dict[str, str] = {}
    expected = {}
    for source, rows in texts.items():
        for text in rows:
            if first.setdefault(text, source) != source:
                expected[source, id_of(text)] = (first[text], id_of(text))
    assert removed(result) == expected


def test_the_order_of_the_inputs_does_not_matter(tmp_path: Path) -> None:
    sources = {name: normalized(tmp_path / name, ["x", "y", name]) for name in ("a", "b", "c")}
    backwards = dict(reversed(sources.items()))
    digests = {
        run_program(exact_duplicates, ExactDedupConfig(), tmp_path / f"out{n}", normalized=s).digest
        for n, s in enumerate([sources, backwards])
    }
    assert len(digests) == 1


def test_no_source_at_all_gives_an_empty_artifact(tmp_path: Path) -> None:
    assert run_program(exact_duplicates, ExactDedupConfig(), tmp_path / "out", normalized={}).stats["documents"] == 0
