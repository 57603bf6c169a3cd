"""Shards: aligned or refused, and of the same bytes for the same rows."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.artifacts.manifest import FileEntry
from infra.artifacts.writer import Writer
from ops.shards import MisalignedShardError, check_aligned, shard_writer

SCHEMA = pa.schema([("id", pa.string()), ("length", pa.int64())])
IDS = [f"{n:04x}" for n in range(12)]


def array(ids: list[str]) -> pa.Array:
    return pa.array(ids, pa.string())


def one_chunk(ids: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([array(ids)])


def many_chunks(ids: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([array(ids[:1]), array([]), array(ids[1:5]), array(ids[5:])])


KINDS = (array, one_chunk, many_chunks)


@pytest.mark.parametrize("of_reference", KINDS)
@pytest.mark.parametrize("of_other", KINDS)
def test_columns_align_by_their_ids_however_arrow_holds_them(of_reference, of_other) -> None:  # type: ignore[no-untyped-def]
    check_aligned("part", of_reference(IDS), of_other(IDS))
    check_aligned("part", of_reference([]), of_other([]))
    swapped = [*IDS[:7], IDS[8], IDS[7], *IDS[9:]]
    with pytest.raises(MisalignedShardError, match=re.escape("part: row 7 has id 0008 beside 0007")):
        check_aligned("part", of_reference(IDS), of_other(IDS), of_other(swapped))
    with pytest.raises(MisalignedShardError, match=re.escape("part: 11 rows beside 12; rebuild the shorter artifact")):
        check_aligned("part", of_reference(IDS), of_other(IDS[:-1]))


def written(directory: Path, batches: list[pa.RecordBatch]) -> FileEntry:
    out = Writer(str(directory), scratch_url=str(directory / "scratch"))
    with shard_writer(out, "part.parquet", SCHEMA) as write:
        for batch in batches:
            write(batch)
    return out.files[0]


def test_the_same_rows_in_the_same_batches_are_the_same_bytes(tmp_path: Path) -> None:
    rows = pa.record_batch([array(IDS), pa.array(range(len(IDS)), pa.int64())], schema=SCHEMA)
    halves = [rows.slice(0, 5), rows.slice(5)]
    copies = [pa.RecordBatch.from_pylist(half.to_pylist(), schema=SCHEMA) for half in halves]  # equal rows in buffers of their own
    first = written(tmp_path / "first", halves)
    assert written(tmp_path / "second", [copies[0], rows.slice(0, 0), copies[1]]) == first  # batches without rows leave no trace
    assert written(tmp_path / "third", copies[:1]) != first


def test_a_shard_without_rows_has_its_schema(tmp_path: Path) -> None:
    written(tmp_path, [])
    found = pq.read_table(tmp_path / "part.parquet")
    assert (found.schema, found.num_rows) == (SCHEMA, 0)
