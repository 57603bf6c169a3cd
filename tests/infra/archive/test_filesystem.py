"""archive:// through fsspec: blobs and tables of one snapshot, to read."""

import subprocess
import sys

import duckdb
import fsspec
import polars as pl
import pyarrow.parquet as pq
import pytest

from infra.archive.archive import Archive
from infra.storage.errors import PermanentStorageError
from tests.infra.archive.builders import ITEMS, add, items


@pytest.fixture
def archive(storage: str) -> Archive:
    archive = Archive(f"{storage}/archive")
    with archive.transaction() as transaction:
        transaction.append(ITEMS, items([1, 2]))
        transaction.put_blob("trajectories/1 [a].json", b'{"turns": 3}')
        transaction.put_blob("report", b"")
    add(archive, [3])
    return archive


def test_a_blob_opens_by_its_uri_in_its_archive_and_by_a_whole_uri_anywhere(archive: Archive) -> None:
    uri = "archive://blobs/trajectories/1 [a].json"
    with archive.open(uri) as stream:
        assert stream.read() == b'{"turns": 3}'
    with fsspec.open(f"{uri}::{archive.url}", "rb") as stream:
        assert stream.seek(2) == 2
        assert stream.read(5) == b"turns"
    with archive.open(f"{uri}::{archive.url}") as stream:
        assert stream.read(1) == b"{"


def test_what_an_archive_does_not_have_is_not_found(archive: Archive) -> None:
    with pytest.raises(FileNotFoundError, match=r"archive://blobs/other: .* has no such blob or shard in commit 2"):
        archive.open("archive://blobs/other")
    with pytest.raises(FileNotFoundError, match="has no blob 'other' in commit 2"):
        archive.snapshot().open_blob("other")
    with pytest.raises(ValueError, match="is not in the archive"):
        archive.open("archive://blobs/report::/somewhere/else")
    with pytest.raises(ValueError, match="is not in the archive"):
        archive.open("s3://bucket/report")
    with pytest.raises(ValueError, match="does not say which archive"):
        fsspec.filesystem("archive").ls("")


def test_tables_and_blobs_are_listed(archive: Archive) -> None:
    filesystem, path = fsspec.url_to_fs(f"archive://::{archive.url}")
    assert filesystem.ls(path, detail=False) == ["blobs", "tables"]
    assert filesystem.ls("blobs", detail=False) == ["blobs/report", "blobs/trajectories"]
    assert filesystem.find("tables") == [f"tables/items/0000{shard}-of-00002.parquet" for shard in range(2)]
    assert filesystem.info("blobs/trajectories/1 [a].json")["size"] == 12
    assert filesystem.isdir("tables/items")
    assert not filesystem.exists("tables/other")
    assert filesystem.cat_file("blobs/trajectories/1 [a].json", 2, 7) == b"turns"


def test_shards_are_readable_through_it_by_any_reader_of_files(archive: Archive) -> None:
    url = f"archive://tables/items/00000-of-00002.parquet::{archive.url}"
    with fsspec.open(url, "rb") as stream:
        assert pq.read_table(stream).column("doc").to_pylist() == [1, 2]
    with fsspec.open(url, "rb") as stream:
        assert pl.read_parquet(stream)["doc"].to_list() == [1, 2]


def test_duckdb_reads_a_table_by_its_uri_once_it_knows_the_filesystem(archive: Archive) -> None:
    with duckdb.connect() as connection:
        connection.register_filesystem(fsspec.filesystem("archive", fo=archive.url))
        query = "select doc, text from read_parquet('archive://tables/items/*.parquet', union_by_name=true) order by doc"
        assert connection.sql(query).fetchall() == [(doc, f"question {doc} of gsm8k") for doc in (1, 2, 3)]


def test_a_filesystem_shows_the_snapshot_that_was_the_newest_when_it_was_made(archive: Archive) -> None:
    old, _ = fsspec.url_to_fs(f"archive://::{archive.url}")
    assert len(old.find("tables")) == 2
    add(archive, [4])
    new, _ = fsspec.url_to_fs(f"archive://::{archive.url}")
    assert len(new.find("tables")) == 3
    assert len(old.find("tables")) == 2


def test_nothing_can_be_written_through_it(archive: Archive) -> None:
    filesystem, _ = fsspec.url_to_fs(f"archive://::{archive.url}")
    for write in (
        lambda: filesystem.open("blobs/report", "wb"),
        lambda: filesystem.pipe_file("blobs/report", b"x"),
        lambda: filesystem.rm("blobs/report"),
        lambda: filesystem.makedirs("blobs/x"),
    ):
        with pytest.raises(PermanentStorageError, match="archive:// is read-only"):
            write()


def test_making_the_protocol_known_imports_no_parquet() -> None:
    script = "import infra.archive, sys; print('pyarrow' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == "False"
