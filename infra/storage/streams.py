"""Large files: streamed to their place, known to be there whole once `commit` returned, and read back piece by piece.

A program that dies in between, or a server that keeps less than it confirmed, leaves nothing that could be taken for
a whole file.
"""

import io
from contextlib import suppress
from typing import IO, Any, Protocol

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from infra.storage.errors import TransientStorageError, retried, storage_errors
from infra.storage.filesystem import open_filesystem
from infra.storage.objects import sha256_of
from infra.storage.s3 import is_s3
from infra.storage.upload import S3Upload
from infra.storage.users import read_url


class NewFile(Protocol):
    """A file that is being written, by one thread. Errors are `StorageError`s that name it."""

    def write(self, data: memoryview) -> None:
        """Take the next bytes."""

    def commit(self, size: int, sha256: str) -> None:
        """Finish the file and verify that storage has `size` bytes with this SHA-256 (hex), as far as it can tell cheaply."""

    def discard(self) -> None:
        """Remove what was written. Never raises."""


def new_file(filesystem: AbstractFileSystem, path: str, url: str) -> NewFile:
    """Start writing a file at `path` of a filesystem; `url` names it in errors.

    Raises:
        StorageError: the disk is full, read-only, or does not answer.
    """
    if is_s3(filesystem):
        return S3Upload(filesystem, path, url, lambda size: sha256_of(url, size))
    return _Streamed(filesystem, path, url)


def open_file(url: str) -> IO[bytes]:
    """Open a file for reading, seekable. From an object store its errors are `StorageError`s.

    Raises:
        FileNotFoundError: there is no such file.
    """
    url = read_url(url)
    filesystem, path = open_filesystem(url)
    if isinstance(filesystem, LocalFileSystem):
        return filesystem.open(path, "rb")  # type: ignore[no-any-return]
    stream = retried("read", url, lambda: filesystem.open(path, "rb"))  # asks for its size
    return _TypedReads(stream, url)  # type: ignore[return-value]


class _Streamed:
    """A file on a disk or in memory, through fsspec's own stream."""

    def __init__(self, filesystem: AbstractFileSystem, path: str, url: str) -> None:
        self._filesystem, self._path, self._url = filesystem, path, url
        with storage_errors("write", url):
            filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._stream = filesystem.open(path, "wb")

    def write(self, data: memoryview) -> None:
        with storage_errors("write", self._url):
            self._stream.write(data)

    def commit(self, size: int, sha256: str) -> None:
        with storage_errors("write", self._url):
            self._stream.close()
            stored = self._filesystem.size(self._path)
        if stored != size:
            raise TransientStorageError(f"can't write {self._url}: storage kept {stored} of {size} bytes; run again")

    def discard(self) -> None:
        with suppress(Exception):
            self._stream.close()
        with suppress(Exception):
            self._filesystem.rm_file(self._path)


class _TypedReads(io.RawIOBase):
    """A stream of fsspec whose errors say which file and whether another try may help."""

    def __init__(self, stream: Any, url: str) -> None:
        self._stream, self._url = stream, url

    def read(self, size: int | None = -1) -> bytes:
        wanted = -1 if size is None else size
        data: bytes = retried("read", self._url, lambda: self._stream.read(wanted))  # the position moves with success alone
        return data

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with storage_errors("read", self._url):
            return self._stream.seek(offset, whence)  # type: ignore[no-any-return]

    def tell(self) -> int:
        return self._stream.tell()  # type: ignore[no-any-return]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
