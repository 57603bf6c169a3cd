"""Exact duplicates across sources."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from infra.artifacts.artifact import Artifact
from ops.dataflow.errors import PoisonedShardsError
from ops.dataflow.shard import Shard, Tally
from ops.dedup.config import ExactDedupConfig
from ops.dedup.exact import exact_duplicates
from ops.dedup.occurrences import OCCURRENCES, REPEATS, TRAIN, find_repeats, repeats_among
from ops.shards import read_table, shard_name, shard_names
from tests.builders import artifact_of, run_program
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


@pytest.mark.parametrize(("shards", "rows_per_bucket"), [(1, 4_000_000), (4, 4_000_000), (2, 9)])
def test_one_survivor_per_text_agrees_with_a_dict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int, rows_per_bucket: int
) -> None:
    monkeypatch.setattr("ops.dedup.exact.ROWS_PER_BUCKET", rows_per_bucket)
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


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 100])
def test_an_id_whose_copies_lie_in_several_batches_has_one_survivor(batch_rows: int) -> None:
    rows = sorted((n % 3, n % 7, n + (TRAIN if n % 5 else 0)) for n in range(60))
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=OCCURRENCES.schema.names).cast(OCCURRENCES.schema)
    found = pa.Table.from_batches(find_repeats(Shard("b", 0), iter(table.to_batches(batch_rows)), Tally()), REPEATS)
    survivors: dict[tuple[int, int], int] = {}
    expected = [
        (rank % TRAIN, survivors[high, low]) for high, low, rank in rows if survivors.setdefault((high, low), rank % TRAIN) != rank % TRAIN
    ]
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected
    assert len(expected) == 60 - 21


def test_shards_of_many_batches_are_flagged_in_their_places(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(9_000)]
    sources = {"a": normalized(tmp_path / "a", texts), "b": normalized(tmp_path / "b", texts[::2])}
    result = run_program(exact_duplicates, ExactDedupConfig(), tmp_path / "out", normalized=sources)
    assert removed(result) == {("b", id_of(text)): ("a", id_of(text)) for text in texts[::2]}


@pytest.mark.parametrize("seed", range(3))
def test_repeats_sorted_in_memory_are_those_of_a_dict(seed: int) -> None:
    random = np.random.default_rng(seed)
    columns = [random.integers(0, 5, 200).astype(np.uint64), random.integers(0, 5, 200).astype(np.uint64), random.permutation(200)]
    columns[2] = columns[2] + np.where(random.random(200) < 0.5, TRAIN, 0)
    batches = pa.table([pa.array(column) for column in columns], schema=OCCURRENCES.schema).to_batches(max_chunksize=7)
    rows = sorted(zip(*(column.tolist() for column in columns), strict=True))
    first: dict[tuple[int, int], int] = {}
    expected = sorted(
        (rank % TRAIN, first[high, low]) for high, low, rank in rows if first.setdefault((high, low), rank % TRAIN) != rank % TRAIN
    )
    found = repeats_among(batches)
    assert list(zip(found["number"].to_pylist(), found["survivor"].to_pylist(), strict=True)) == expected


def test_documents_that_fit_one_bucket_and_documents_that_are_shuffled_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {
        name: normalized(tmp_path / name, map(str, range(start, start + 60)), held_out=[str(start + 7)], shards=shards)
        for name, start, shards in (("a", 0, 2), ("b", 20, 3), ("c", 45, 1))
    }
    results = [run_program(exact_duplicates, ExactDedupConfig(), tmp_path / "at once", normalized=sources)]
    for rows_per_bucket in (90, 30):
        monkeypatch.setattr("ops.dedup.exact.ROWS_PER_BUCKET", rows_per_bucket)
        results.append(run_program(exact_duplicates, ExactDedupConfig(), tmp_path / f"{rows_per_bucket}", normalized=sources))
    assert len({(result.digest, str(result.stats)) for result in results}) == 1
    assert results[0].stats["duplicates"] == 40 + 35


@pytest.mark.parametrize("rows_per_bucket", [4_000_000, 1])
def test_ids_that_are_no_hashes_are_refused_by_name_of_the_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_per_bucket: int
) -> None:
    monkeypatch.setattr("ops.dedup.exact.ROWS_PER_BUCKET", rows_per_bucket)
    table = pa.table({"id": ["short"], "is_held_out": [False]})
    source = artifact_of(tmp_path / "a", {shard_name(0, 1): table})
    with pytest.raises(PoisonedShardsError, match=r"a/part-00000-of-00001\.parquet, rows? 0 .*32 hex digits"):
        run_program(exact_duplicates, ExactDedupConfig(), tmp_path / "out", normalized={"a": source})


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
