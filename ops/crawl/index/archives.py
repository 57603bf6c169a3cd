"""Where archives lie: ranged reads over HTTP, checked to the letter, or from any filesystem that fsspec knows.

Errors are those of `infra.storage`: transient (ask again) or permanent, with one kind of permanent apart, since the
records before it can still be had: the archive is shorter than the index thinks.
"""

import re
from collections.abc import Iterator
from typing import Protocol
from urllib.parse import quote

import httpx
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from infra.storage.errors import PermanentStorageError, TransientStorageError, http_status, storage_errors
from infra.storage.filesystem import open_filesystem
from ops.crawl.config import IndexSource
from ops.crawl.listing import resolve_root
from ops.crawl.robots import USER_AGENT

CHUNK_BYTES = 1 << 20
# 403 too: the public bucket of Common Crawl says so when it is asked too often.
BUSY_STATUSES = frozenset({403, 408, 425, 429, 500, 502, 503, 504})
MAX_RETRY_AFTER_S = 60.0
CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class OutOfRangeError(PermanentStorageError):
    """The archive ends before the range does."""


class BusyError(TransientStorageError):
    """The server wants to be asked later. `retry_after_s`: how much later, if it said so."""

    def __init__(self, message: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Archives(Protocol):
    """The archives of one crawl. Used by several threads at once."""

    def read(self, name: str, start: int, end: int) -> Iterator[bytes]:
        """The bytes [start, end) of an archive, in order, in pieces; none of them beyond `end`.

        Raises:
            TransientStorageError: at any point; what was given before is good.
            OutOfRangeError: the archive ends before `end`.
            PermanentStorageError: there is no such archive, or no permission to read it.
        """

    def close(self) -> None: ...


def open_archives(source: IndexSource) -> Archives:
    """The archives of a source, by the scheme of their root."""
    root = resolve_root(source.archive or source.root).rstrip("/")
    if root.startswith(("http://", "https://")):
        return HttpArchives(root, connect_timeout_s=source.connect_timeout_s, read_timeout_s=source.read_timeout_s)
    return StoredArchives(root)


class HttpArchives:
    """Archives behind a web server. An answer counts only if it is 206 and names exactly the bytes that were asked for."""

    def __init__(self, root: str, *, connect_timeout_s: float, read_timeout_s: float) -> None:
        self._root = root
        self._client = httpx.Client(
            timeout=httpx.Timeout(read_timeout_s, connect=connect_timeout_s),
            follow_redirects=True,
            trust_env=False,
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        )
        self._etags: dict[str, str] = {}

    def close(self) -> None:
        self._client.close()

    def read(self, name: str, start: int, end: int) -> Iterator[bytes]:
        url = f"{self._root}/{quote(_checked(name))}"
        try:
            with self._client.stream("GET", url, headers={"Range": f"bytes={start}-{end - 1}"}) as answer:
                self._check(answer, name, url, start, end)
                left = end - start
                for chunk in answer.iter_raw():  # as it comes: what httpx collects for a larger chunk is lost when the connection breaks
                    if len(chunk) > left:
                        raise TransientStorageError(f"can't read {url}: the server sent more than bytes {start} to {end}")
                    left -= len(chunk)
                    yield chunk
        except httpx.TransportError as error:
            raise TransientStorageError(f"can't read {url}: {type(error).__name__}: {str(error) or 'the connection broke'}") from error
        except httpx.InvalidURL as error:
            raise PermanentStorageError(f"can't read {url}: {error}") from error
        if left:
            raise TransientStorageError(f"can't read {url}: the connection ended {left} bytes before {end}")

    def _check(self, answer: httpx.Response, name: str, url: str, start: int, end: int) -> None:
        if answer.status_code in BUSY_STATUSES:
            raise BusyError(f"can't read {url}: the server answered {answer.status_code}", _retry_after_s(answer))
        if answer.status_code == 416:
            raise OutOfRangeError(f"can't read {url}: it has no bytes {start} to {end}")
        if answer.status_code == 200:
            raise TransientStorageError(f"can't read {url}: the server answered 200 with the whole file to a request for a range of it")
        if answer.status_code != 206:
            raise PermanentStorageError(f"can't read {url}: the server answered {answer.status_code}; check `archive` and the index")
        given = answer.headers.get("content-range", "")
        match = CONTENT_RANGE.fullmatch(given.strip())
        if match and match[3] != "*" and int(match[1]) == start and int(match[2]) + 1 == int(match[3]) < end:
            raise OutOfRangeError(f"can't read {url}: it has {match[3]} bytes, and the index says {end} or more")
        if match is None or (int(match[1]), int(match[2])) != (start, end - 1):
            raise TransientStorageError(
                f"can't read {url}: asked for bytes {start}-{end - 1}, the server answered with {given or 'no range'!r}"
            )
        length = answer.headers.get("content-length")
        if length is not None and length != str(end - start):
            raise TransientStorageError(f"can't read {url}: Content-Length is {length} for {end - start} bytes")
        etag = answer.headers.get("etag")
        if etag and self._etags.setdefault(name, etag) != etag:
            raise TransientStorageError(
                f"can't read {url}: it changed while it was read (ETag {self._etags[name]}, then {etag}); run again"
            )


class StoredArchives:
    """Archives on a disk or in an object store."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._filesystem: AbstractFileSystem
        self._filesystem, self._path = open_filesystem(root)

    def close(self) -> None:
        return None

    def read(self, name: str, start: int, end: int) -> Iterator[bytes]:
        url, path = f"{self._root}/{_checked(name)}", f"{self._path.rstrip('/')}/{name}"
        for at in range(start, end, CHUNK_BYTES):
            upto = min(at + CHUNK_BYTES, end)
            with storage_errors("read", url):
                try:
                    chunk: bytes = self._chunk(path, at, upto)
                except FileNotFoundError:
                    raise PermanentStorageError(f"can't read {url}: there is no such archive; check `archive` and the index") from None
                except OSError as error:
                    if http_status(error) != 416:
                        raise
                    chunk = b""  # S3's word for a range that begins at the end or behind it
            yield chunk
            if len(chunk) < upto - at:
                self._explain_short(url, path, at + len(chunk), end)

    def _chunk(self, path: str, start: int, end: int) -> bytes:
        if isinstance(self._filesystem, LocalFileSystem):  # fsspec's own opens the file by pieces of its block size
            with open(path, "rb") as stream:
                stream.seek(start)
                return stream.read(end - start)
        return self._filesystem.cat_file(path, start=start, end=end)  # type: ignore[no-any-return]

    def _explain_short(self, url: str, path: str, reached: int, end: int) -> None:
        with storage_errors("read", url):
            size = self._filesystem.size(path)
        if size is not None and size < end:
            raise OutOfRangeError(f"can't read {url}: it has {size} bytes, and the index says {end} or more")
        raise TransientStorageError(f"can't read {url}: storage stopped at byte {reached}, before {end}")


def _checked(name: str) -> str:
    """An archive's name, if it stays below the root: an index is somebody else's file, and this machine has files of its own."""
    if name.startswith("/") or "://" in name or "\\" in name or {"..", "."} & set(name.split("/")):
        raise PermanentStorageError(f"{name[:200]!r} is no archive's name: it leads out of the root")
    return name


def _retry_after_s(answer: httpx.Response) -> float | None:
    value = answer.headers.get("retry-after", "")
    return min(float(value), MAX_RETRY_AFTER_S) if value.isdigit() else None
