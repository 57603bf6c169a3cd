"""How filesystems are opened: without listing caches, and with an end to waiting."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from infra.storage import errors
from infra.storage.errors import TransientStorageError
from infra.storage.filesystem import open_filesystem, uncached
from infra.storage.objects import create_exclusive, read_or_none
from tests.infra.storage.seaweed import pointed_at, s3_environment


@pytest.mark.parametrize("url", ["s3://bucket/x", "s3a://bucket/x", "gs://bucket/x", "abfs://container/x", "https://host/x"])
def test_no_remote_filesystem_caches_its_listings(url: str) -> None:
    assert uncached(url)["use_listings_cache"] is False


@pytest.mark.parametrize("url", ["/a/path", "relative", "file:///a", "memory://a", "users://a", "dir::file:///a"])
def test_what_has_no_listing_cache_gets_no_option_for_it(url: str) -> None:
    assert uncached(url) == {}


@pytest.mark.s3
def test_a_filesystem_of_s3_really_has_no_listing_cache() -> None:
    filesystem, path = open_filesystem("s3://bucket/x")
    filesystem.dircache[path] = [{"name": "stale"}]
    assert path not in filesystem.dircache


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Takes connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=128)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.s3
def test_a_server_that_swallows_requests_ends_in_a_transient_error(silent_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    monkeypatch.setattr(s3fs.S3FileSystem, "read_timeout", 0.1)
    monkeypatch.setattr(errors, "GIVE_UP_AFTER_S", 1)
    with pointed_at(s3_environment(silent_server)):
        started = time.monotonic()
        for use in (lambda: create_exclusive("s3://bucket/x", b"x"), lambda: read_or_none("s3://bucket/x")):
            with pytest.raises(TransientStorageError, match=r"can't \w+ s3://bucket/x: .*check that it runs, then run again"):
                use()
        assert time.monotonic() - started < 30, "a few requests of 0.1 s and their pauses, begun within a second"


@pytest.mark.s3
def test_a_server_that_is_not_there_ends_in_a_transient_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "GIVE_UP_AFTER_S", 1)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pointed_at(s3_environment(address)), pytest.raises(TransientStorageError, match=r"can't read s3://bucket/x: .*connect"):
        read_or_none("s3://bucket/x")
