"""Ranged reads from a real server that cuts, throttles, lies and refuses."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import fsspec
import pytest

from infra.storage.errors import PermanentStorageError, TransientStorageError
from ops.crawl.index.archives import Archives, HttpArchives, OutOfRangeError, StoredArchives
from ops.crawl.index.ranges import Patience, read_range
from tests.ops.crawl.index.archive_server import ArchiveServer, Fault, cut_after, serving_archives, shifted, status, whole_file

DATA = os.urandom(300_000)


@pytest.fixture
def server() -> Iterator[ArchiveServer]:
    with serving_archives({"a/b.warc.gz": DATA}) as found:
        yield found


def read(
    archives: Archives, start: int, end: int, *, name: str = "a/b.warc.gz", stalls: int = 3, waits: list[float] | None = None
) -> bytes:
    sink = io.BytesIO()
    patience = Patience(stalls, sleep=(waits if waits is not None else []).append)
    try:
        read_range(archives, name, start, end, sink, patience, lambda count: None)
    finally:
        archives.close()
    return sink.getvalue()


def over_http(server: ArchiveServer) -> HttpArchives:
    return HttpArchives(server.root, connect_timeout_s=5, read_timeout_s=5)


def test_a_range_is_those_bytes_and_no_more(server: ArchiveServer):
    assert read(over_http(server), 1000, 250_000) == DATA[1000:250_000]
    assert server.requests == [("a/b.warc.gz", 1000, 250_000)]
    assert next(iter(server.agents)).startswith("seaway/")


def test_reading_goes_on_behind_the_last_byte_that_came(server: ArchiveServer):
    """More cuts than the patience allows in a row, each after some bytes: progress, so no reason to give up."""
    server.faults["a/b.warc.gz"] = [cut_after(10_000)] * 6
    assert read(over_http(server), 0, 200_000, stalls=2) == DATA[:200_000]
    starts = [start for _, start, _ in server.requests]
    assert len(starts) == 7
    assert starts == sorted(set(starts))
    assert starts[-1] > 0


@pytest.mark.parametrize("fault", [status(503), status(403), status(429), status(500), whole_file, shifted, cut_after(0)])
def test_what_may_pass_is_tried_again(server: ArchiveServer, fault: Fault):
    waits: list[float] = []
    server.faults["a/b.warc.gz"] = [fault, fault]
    assert read(over_http(server), 5, 5000, waits=waits) == DATA[5:5000]
    assert len(waits) == 2
    assert 0.5 <= waits[1] / waits[0] <= 4  # twice as long, give or take the jitter


@pytest.mark.parametrize(("fault", "why"), [(status(503), "answered 503"), (whole_file, "answered 200"), (shifted, "server answered with")])
def test_patience_ends_after_so_many_reads_without_a_byte(server: ArchiveServer, fault: Fault, why: str):
    server.faults["a/b.warc.gz"] = [fault] * 9
    with pytest.raises(TransientStorageError, match=rf"{why}.*given up after 3 reads in a row"):
        read(over_http(server), 0, 5000)
    assert len(server.requests) == 3


def test_a_server_says_itself_how_long_to_wait(server: ArchiveServer):
    waits: list[float] = []
    server.faults["a/b.warc.gz"] = [status(503, Retry_After="7"), status(429, Retry_After="86400"), status(503, Retry_After="Mon, 1 Jan")]
    read(over_http(server), 0, 10, stalls=9, waits=waits)
    assert waits[:2] == [7.0, 60.0]
    assert waits[2] <= 2.0


def test_an_archive_that_is_not_there_is_no_reason_to_wait(server: ArchiveServer):
    waits: list[float] = []
    with pytest.raises(PermanentStorageError, match=r"gone\.warc\.gz: the server answered 404"):
        read(over_http(server), 0, 10, name="gone.warc.gz", waits=waits)
    assert waits == []


@pytest.mark.parametrize(("start", "end"), [(300_000, 300_010), (299_990, 300_010)])
def test_the_end_of_an_archive_is_an_error_of_its_own(server: ArchiveServer, tmp_path: Path, start: int, end: int):
    """416 when nothing of the range is there, a shorter Content-Range when some is."""
    with pytest.raises(OutOfRangeError):
        read(over_http(server), start, end)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.warc.gz").write_bytes(DATA)
    with pytest.raises(OutOfRangeError, match="it has 300000 bytes"):
        read(StoredArchives(str(tmp_path)), start, end)


def test_an_archive_that_changes_under_our_hands_is_never_mixed(server: ArchiveServer):
    def change(handler: object, data: bytes, start: int, end: int) -> None:
        server.etag = '"two"'
        status(503)(handler, data, start, end)  # type: ignore[arg-type]

    server.faults["a/b.warc.gz"] = [cut_after(4000), change]
    with pytest.raises(TransientStorageError, match="it changed while it was read"):
        read(over_http(server), 0, 9000)


def test_a_server_that_hangs_up_is_transient():
    with serving_archives({}) as server:
        root = server.root
    with pytest.raises(TransientStorageError, match="given up after 2 reads"):
        read(HttpArchives(root, connect_timeout_s=1, read_timeout_s=1), 0, 10, stalls=2)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret", "file:///etc/passwd", "a/./b", "a\\..\\b"])
def test_no_name_in_an_index_leads_out_of_the_archives(server: ArchiveServer, tmp_path: Path, name: str):
    (tmp_path / "secret").write_bytes(b"a secret of this machine")
    (tmp_path / "root").mkdir()
    for archives in (StoredArchives(str(tmp_path / "root")), over_http(server)):
        with pytest.raises(PermanentStorageError, match="leads out of the root"):
            read(archives, 0, 5, name=name)
    assert server.requests == []


def test_names_are_names_and_no_parts_of_a_url(server: ArchiveServer):
    server.files["a%20b #1?x.warc.gz"] = DATA
    server.files = {quote(name): data for name, data in server.files.items()}
    assert read(over_http(server), 0, 50, name="a%20b #1?x.warc.gz") == DATA[:50]


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_any_filesystem_gives_ranges(tmp_path: Path, place: str):
    root = str(tmp_path) if place == "disk" else "memory://archives-of-test"
    filesystem, path = fsspec.url_to_fs(root)
    big = os.urandom(2_500_000)
    filesystem.makedirs(f"{path}/a", exist_ok=True)
    filesystem.pipe_file(f"{path}/a/b.warc.gz", big)
    try:
        assert read(StoredArchives(root), 3, 2_400_000) == big[3:2_400_000]
        with pytest.raises(PermanentStorageError, match="there is no such archive"):
            read(StoredArchives(root), 0, 5, name="a/c.warc.gz")
    finally:
        filesystem.rm(path, recursive=True)
