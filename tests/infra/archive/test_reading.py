"""Snapshots: by the archive itself, and by any reader of Parquet."""

import duckdb
import fsspec
import polars as pl
import pyarrow as pa
import pytest

from infra.archive.archive import Archive
from infra.archive.errors import (
    ArchiveNotFoundError,
    CorruptArchiveError,
)
from infra.storage.objects import replace
from tests.infra.archive.builders import GROWN, ITEMS, add, docs_in


def test_an_earlier_commit_can_be_read(archive: Archive) -> None:
    add(archive, [1])
    add(archive, [2])
    assert archive.snapshot_at(1).read("items", ["doc"]).column("doc").to_pylist() == [1]
    with pytest.raises(ArchiveNotFoundError, match="commit 7 never was"):
        archive.snapshot_at(7)


def test_an_archive_that_is_not_there_says_so(archive: Archive) -> None:
    with pytest.raises(ArchiveNotFoundError, match="no archive lies at"):
        archive.snapshot()


def test_polars_and_duckdb_read_the_shards_as_the_archive_does(here: Archive) -> None:
    for doc in range(5):
        add(here, [doc, doc + 100], table=GROWN if doc > 2 else ITEMS)
    here.compact(target_bytes=4_000)
    add(here, [50], table=GROWN)
    found = here.snapshot()
    urls = list(found.shard_urls("items"))
    assert len(urls) > 2
    expected = found.read("items").to_pylist()
    assert pl.concat([pl.read_parquet(url) for url in urls], how="diagonal").to_dicts() == expected
    with duckdb.connect() as connection:
        query = "select * from read_parquet(?, union_by_name=true) order by doc"
        by_duckdb = connection.sql(query, params=[urls]).to_arrow_table()
    assert by_duckdb.to_pylist() == sorted(expected, key=lambda row: row["doc"])


def test_polars_reads_a_shard_list_of_one_schema_at_once(here: Archive) -> None:
    for doc in range(4):
        add(here, [doc])
    here.compact(target_bytes=4_000)
    add(here, [9])
    assert pl.read_parquet(list(here.snapshot().shard_urls("items"))).to_dicts() == here.snapshot().read("items").to_pylist()


def test_reading_holds_a_row_group_and_not_the_table(here: Archive) -> None:
    text = "x" * 1_000
    schema = ITEMS.schema
    with here.transaction() as transaction:
        for start in range(0, 100_000, 5_000):
            rows = {"task": ["t"] * 5_000, "doc": range(start, start + 5_000), "text": [f"{doc}{text}" for doc in range(5_000)]}
            transaction.append(ITEMS, pa.RecordBatch.from_pydict(rows, schema))
    before = pa.total_allocated_bytes()
    peak = seen = 0
    for batch in here.snapshot().batches("items"):
        peak = max(peak, pa.total_allocated_bytes() - before)
        seen += batch.nbytes
    assert seen > 100_000_000
    assert peak < 40_000_000  # a group of 8,192 rows is 8 MB: the encoded one, the decoded one, and the batch


def test_a_shard_or_a_sidecar_that_was_changed_is_noticed(here: Archive) -> None:
    add(here, [1])
    found = here.snapshot()
    (shard,) = found.shards("items")
    replace(f"{here.url}/{shard.keys_file}", b"\0" * 16)
    with pytest.raises(CorruptArchiveError, match=r"items-00000\.keys is missing or is not what was committed"):
        add(Archive(here.url), [2])
    replace(f"{here.url}/{shard.file}", b"\0" * shard.size)
    with pytest.raises(CorruptArchiveError, match=r"items-00000\.parquet is missing or is not"):
        found.verify()


def test_an_archive_on_a_users_layer_is_found_again(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAWAY_USERS_PREFIX", storage)
    monkeypatch.setenv("SEAWAY_USER", "ada")
    fsspec.get_filesystem_class("users").clear_instance_cache()
    archive = Archive("users://runs/archive")
    add(archive, [1])
    assert archive.snapshot().shard_urls("items")[0].startswith(f"{storage}/users/ada/runs/archive/commit-")
    assert docs_in(archive) == [1]
    fsspec.get_filesystem_class("users").clear_instance_cache()
