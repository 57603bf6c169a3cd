"""Small whole objects: created once by one winner, read whole, replaced whole. A reader never sees a part.

Every deciding operation of Seaway (publication, leases) is one of these calls. No listing cache is ever
consulted, errors are typed (`infra.storage.errors`), and transient ones are tried again.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from infra.storage import local, memory, s3
from infra.storage.errors import PermanentStorageError, TransientStorageError, error_code, retried
from infra.storage.filesystem import open_filesystem
from infra.storage.users import read_url, write_url

CHUNK_BYTES = 32 * 1024 * 1024  # one ranged GET; large enough to hide a round trip to S3, small beside a worker's memory

Creator = Callable[[AbstractFileSystem, str, bytes], bool]


def create_exclusive(url: str, data: bytes) -> bool:
    """Create an object unless one is there, in one conditional create.

    Put something unique into `data` (an attempt's uid): own success is recognised by equal bytes, also when the
    reply of an earlier try was lost.

    Returns:
        True: `data` is what is stored. False: somebody else's object was there, and still is.

    Raises:
        PermanentStorageError: storage refused, or this filesystem has no conditional create.
        TransientStorageError: storage stayed away; whether the object was created is unknown, so call again.
    """
    url = write_url(url)
    filesystem, path = open_filesystem(url)
    create = _creator_for(filesystem, url)

    def attempt() -> bool:
        if create(filesystem, path, data):
            return True
        stored = read_or_none(url)
        if stored is None:  # S3's 409: another create was in flight and may have failed. It proves nothing, so ask again
            raise TransientStorageError(f"can't create {url}: conditional creates conflicted and none won; run again")
        return stored == data

    return retried("create", url, attempt)


def read_or_none(url: str) -> bytes | None:
    """The whole object, or None if there is none."""
    url = read_url(url)
    filesystem, path = open_filesystem(url)
    read = s3.read if s3.is_s3(filesystem) else _read

    def attempt() -> bytes | None:
        try:
            return read(filesystem, path)
        except FileNotFoundError as error:
            if error_code(error) == "NoSuchBucket":
                raise
            return None

    return retried("read", url, attempt)


def replace(url: str, data: bytes) -> None:
    """Write an object, over an older one if there is one, in one step."""
    url = write_url(url)
    filesystem, path = open_filesystem(url)
    put = local.replace if isinstance(filesystem, LocalFileSystem) else s3.put if s3.is_s3(filesystem) else _put
    retried("write", url, lambda: put(filesystem, path, data))


def list_names(url: str) -> tuple[str, ...]:
    """Names directly below a URL (objects and directories), sorted; empty if there is nothing.

    An object store may name a folder for a while after its last object went (SeaweedFS does): a name promises nothing.
    """
    url = read_url(url)
    filesystem, path = open_filesystem(url)

    def attempt() -> tuple[str, ...]:
        try:
            found = filesystem.ls(path, detail=False, refresh=True)
        except FileNotFoundError as error:
            if error_code(error) == "NoSuchBucket":
                raise
            return ()
        below = {name.rstrip("/").removeprefix(f"{path}/") for name in found if name.startswith(f"{path}/")}
        return tuple(sorted(below - {""}))

    return retried("list", url, attempt)


def list_files(url: str) -> dict[str, int]:
    """Every file below a URL at any depth: name relative to it -> size in bytes. Hidden ones included."""
    url = read_url(url)
    filesystem, path = open_filesystem(url)

    def attempt() -> dict[str, int]:
        found = filesystem.find(path, detail=True)
        return {name.removeprefix(f"{path}/"): int(entry["size"]) for name, entry in found.items() if name != path}

    return retried("list", url, attempt)


def read_chunks(url: str, size: int) -> Iterator[bytes]:
    """The first `size` bytes of an object, `CHUNK_BYTES` at a time.

    Raises:
        FileNotFoundError: there is no such object.
        TransientStorageError: it is shorter than `size`, or storage stayed away.
    """
    url = read_url(url)
    filesystem, path = open_filesystem(url)

    def chunk(start: int, end: int) -> bytes:
        data: bytes = filesystem.cat_file(path, start=start, end=end)
        if len(data) != end - start:
            raise TransientStorageError(f"can't read {url}: storage gave {len(data)} of bytes {start} to {end}; is the file still written?")
        return data

    for start in range(0, size, CHUNK_BYTES):
        end = min(start + CHUNK_BYTES, size)
        yield retried("read", url, partial(chunk, start, end))


def sha256_of(url: str, size: int) -> str:
    """SHA-256 of the first `size` bytes of an object, read back from storage, in hex."""
    hashed = hashlib.sha256()
    for chunk in read_chunks(url, size):
        hashed.update(chunk)
    return hashed.hexdigest()


def persist(url: str) -> None:
    """Return once everything below a URL would survive a power loss: a local disk must be asked, an object store promises it."""
    url = write_url(url)
    filesystem, path = open_filesystem(url)
    if isinstance(filesystem, LocalFileSystem):
        retried("write", url, lambda: local.sync_tree(path))


def remove_tree(url: str) -> None:
    """Remove everything below a URL; nothing there is fine."""
    url = write_url(url)
    filesystem, path = open_filesystem(url)
    remove = local.remove_tree if isinstance(filesystem, LocalFileSystem) else s3.remove_tree if s3.is_s3(filesystem) else _remove

    def attempt() -> None:
        try:
            remove(filesystem, path)
        except FileNotFoundError:
            return

    retried("remove", url, attempt)


def _creator_for(filesystem: AbstractFileSystem, url: str) -> Creator:
    if isinstance(filesystem, LocalFileSystem):
        return local.create
    if isinstance(filesystem, MemoryFileSystem):
        return memory.create
    if s3.is_s3(filesystem):
        return s3.create
    raise PermanentStorageError(
        f"can't create {url}: {type(filesystem).__name__} has no conditional create that is known to be safe; use a local path or s3://"
    )


def _read(filesystem: AbstractFileSystem, path: str) -> bytes:
    return filesystem.cat_file(path)  # type: ignore[no-any-return]


def _put(filesystem: AbstractFileSystem, path: str, data: bytes) -> None:
    filesystem.pipe_file(path, data)


def _remove(filesystem: AbstractFileSystem, path: str) -> None:
    filesystem.rm(path, recursive=True)
