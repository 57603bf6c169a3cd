"""A crawl whose index, archives and committed pieces all lie in an object store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.artifacts.writer import Writer
from infra.storage.errors import PermanentStorageError
from infra.storage.filesystem import open_filesystem
from infra.storage.objects import list_files
from ops.crawl.config import RawConfig
from ops.crawl.index.archives import OutOfRangeError, StoredArchives
from ops.crawl.raw import raw
from ops.observe import observe
from tests.builders import publish, run_program
from tests.infra.storage.s3_server import S3, fresh_bucket, serving
from tests.ops.crawl.index.crawls import columnar, index_source, small_crawl, write_index

pytestmark = pytest.mark.s3


@pytest.fixture
def s3() -> Iterator[S3]:
    with serving() as (server, endpoint):
        yield fresh_bucket(server, endpoint)


def test_a_crawl_in_a_bucket_gives_the_bytes_of_the_same_crawl_on_a_disk(s3: S3, tmp_path: Path):
    crawl = small_crawl()
    index = write_index(tmp_path / "index", {"part-0.parquet": columnar(crawl.rows)})
    archive = write_index(tmp_path / "archive", crawl.files)
    filesystem, path = open_filesystem(s3.root)
    for name, data in {
        "index/part-0.parquet": columnar(crawl.rows),
        **{f"archive/{name}": data for name, data in crawl.files.items()},
    }.items():
        filesystem.pipe_file(f"{path}/{name}", data)
    source = index_source(f"{s3.root}/index", f"{s3.root}/archive", task_bytes=4000)
    config = RawConfig(source=source, observed=observe(source))
    scratch = f"{s3.root}/scratch"
    stats = raw(config, out=Writer(str(tmp_path / "one" / "attempt"), scratch_url=scratch))
    committed = {name for name in list_files(scratch) if name.endswith(".json")}
    filesystem.rm(f"{path}/archive", recursive=True)  # a second run asks for nothing
    out = Writer(str(tmp_path / "two" / "attempt"), scratch_url=scratch)
    assert raw(config, out=out) == stats
    assert {name for name in list_files(scratch) if name.endswith(".json")} == committed
    local = index_source(index, str(archive))
    on_disk = run_program(raw, RawConfig(source=local, observed=observe(local)), tmp_path / "disk")
    assert publish(tmp_path / "two", out, stats.model_dump(mode="json")).digest == on_disk.digest


def test_the_end_of_an_object_and_a_missing_one_are_told_apart(s3: S3):
    filesystem, path = open_filesystem(s3.root)
    filesystem.pipe_file(f"{path}/a.warc.gz", b"0123456789")
    archives = StoredArchives(s3.root)
    assert b"".join(archives.read("a.warc.gz", 2, 10)) == b"23456789"
    for start, end in ((5, 12), (10, 12), (40, 50)):
        with pytest.raises(OutOfRangeError, match="it has 10 bytes"):
            list(archives.read("a.warc.gz", start, end))
    with pytest.raises(PermanentStorageError, match="there is no such archive"):
        list(archives.read("b.warc.gz", 0, 5))
