"""Copies of stored files on a local disk, for what must be memory-mapped. A copy is named by its content, so it is never stale.

    {directory}/files/{sha256}

The directory is `$SEAWAY_CACHE`, else a folder in TMPDIR. It may be deleted at any time.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from infra.caches.age import remove_older
from infra.storage.errors import TransientStorageError, storage_errors
from infra.storage.objects import CHUNK_BYTES, read_chunks

_verified: dict[Path, tuple[int, int]] = {}  # what this process has hashed: (inode, size)


def cache_directory() -> Path:
    """Where this machine keeps what it can fetch or compute again."""
    return Path(os.environ.get("SEAWAY_CACHE") or Path(tempfile.gettempdir()) / f"seaway-cache-{os.getuid()}")


def local_copy(url: str, size: int, sha256: str, *, directory: Path | None = None) -> Path:
    """A local file with the bytes of the object at `url`, fetched unless one with this hash is there and still whole.

    Args:
        size, sha256: of the object, from its manifest.

    Raises:
        FileNotFoundError: there is no such object.
        TransientStorageError: what came was not what the manifest says, or storage stayed away.
        PermanentStorageError: the local disk is full or read-only.
    """
    folder = (directory or cache_directory()) / "files"
    path = folder / sha256
    if _is_whole(path, size, sha256):
        with suppress(OSError):
            os.utime(path)  # used: young again
        return path
    with storage_errors("keep a local copy in", str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        remove_older(str(folder))
        with _temporary(folder, sha256) as temporary:
            _fetch(url, size, sha256, temporary)
            os.replace(temporary, path)
    _verified[path] = _identity(path)
    return path


def _fetch(url: str, size: int, sha256: str, target: Path) -> None:
    hashed = hashlib.sha256()
    with target.open("xb") as stream:
        for chunk in read_chunks(url, size):
            hashed.update(chunk)
            stream.write(chunk)
    if hashed.hexdigest() != sha256:
        raise TransientStorageError(f"can't copy {url}: its bytes are not those of its manifest; verify the artifact, then run again")


def _is_whole(path: Path, size: int, sha256: str) -> bool:
    """Hashed once a process: a local disk may rot, or be filled by somebody else."""
    try:
        if path.stat().st_size != size:
            return False
        if _verified.get(path) == _identity(path):
            return True
        hashed = hashlib.sha256()
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                hashed.update(chunk)
    except OSError:
        return False
    if hashed.hexdigest() != sha256:
        return False
    _verified[path] = _identity(path)
    return True


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_ino, found.st_size


@contextmanager
def _temporary(folder: Path, name: str) -> Iterator[Path]:
    path = folder / f".{name[:16]}-{uuid4().hex[:16]}.tmp"
    try:
        yield path
    finally:
        with suppress(OSError):  # renamed, or never made
            path.unlink()
