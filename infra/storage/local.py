"""Atomic whole-file writes on a local (or POSIX network) disk."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from fsspec import AbstractFileSystem

from infra.storage.errors import PermanentStorageError

NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


def create(filesystem: AbstractFileSystem, path: str, data: bytes) -> bool:
    """Create a file with `data` unless one is there: a hidden temporary file, complete and synced, is linked to its name."""
    with _complete_temporary(Path(path), data) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in NO_HARD_LINKS:
                raise PermanentStorageError(f"can't create {path}: this file system has no hard links; choose another root") from error
            raise
    _sync(Path(path).parent)
    return True


def replace(filesystem: AbstractFileSystem, path: str, data: bytes) -> None:
    """Put `data` in the place of a file, in one rename."""
    with _complete_temporary(Path(path), data) as temporary:
        os.replace(temporary, path)
    _sync(Path(path).parent)


def sync_tree(path: str) -> None:
    """Force everything below a directory to the disk: files first, then the folders that name them."""
    for folder, _, names in os.walk(path, topdown=False):
        for name in names:
            _sync(Path(folder) / name)
        _sync(Path(folder))


def remove_tree(filesystem: AbstractFileSystem, path: str) -> None:
    """Remove a directory and all below it, or a file. fsspec's own `rm` would read brackets in a path as a pattern."""
    if os.path.isfile(path):
        os.unlink(path)
    else:
        shutil.rmtree(path)


@contextmanager
def _complete_temporary(target: Path, data: bytes) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name.lstrip('.')}.{uuid4().hex[:16]}.tmp"
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        yield temporary
    finally:
        with suppress(OSError):  # renamed, or never made; an error of the body must not be hidden by this one
            temporary.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
