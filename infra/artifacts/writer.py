"""Where a program writes: one attempt's private directory, hashed as it is written."""

import errno
import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from fsspec.implementations.local import LocalFileSystem

from infra.artifacts.manifest import FileEntry
from infra.storage.errors import storage_errors
from infra.storage.filesystem import open_filesystem
from infra.storage.streams import NewFile, new_file
from infra.storage.users import read_url, write_url

CANNOT_LINK = {errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}  # another disk, or one without hard links


class Progress(Protocol):
    """Told by a program how far it is. Every call is a heartbeat: it says that work was *done*.

    What takes long in one piece (a large checkpoint) reports after each part of it, with the same `done`.
    """

    def __call__(self, done: int, total: int | None, unit: str, **measures: float) -> None: ...


def silent(done: int, total: int | None, unit: str, **measures: float) -> None:
    """Progress that nobody listens to."""


Saved = Callable[[], None]


def unheard() -> None:
    """A checkpoint that nobody is told of."""


class Writer:
    """Writes the files of one attempt under `url`; knows each one's size and hash when it is closed.

    A name may contain folders (`train/part-00000.parquet`); a part that starts with a dot is metadata
    and refused. `scratch_url` is a directory that outlives the attempt: checkpoints of the same recipe
    lie there, and never enter the artifact.

    A program calls `saved` after it has *committed* a checkpoint that is further than the one it began from: an
    infrastructure loss after that is a warm restart and costs the job nothing.
    """

    def __init__(self, url: str, *, scratch_url: str, progress: Progress = silent, saved: Saved = unheard) -> None:
        self.url = url
        self.scratch_url = scratch_url
        self.progress = progress
        self.saved = saved
        self._filesystem, self._path = open_filesystem(write_url(url))
        self._files: dict[str, FileEntry] = {}

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """What was written and closed so far, sorted by name."""
        return tuple(self._files[name] for name in sorted(self._files))

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a new file for writing (append-only, not seekable). It counts once the block ends without an error.

        Raises:
            ValueError: the name is hidden, absolute, or was written before.
            StorageError: the disk is full, read-only, does not answer, or kept something else than was written; one
                sentence says which and where.
        """
        self._require_new(name)
        stream = new_file(self._filesystem, f"{self._path}/{name}", f"{self.url}/{name}")
        hashing = _HashingStream(stream)
        try:
            yield hashing  # type: ignore[misc]
            stream.commit(hashing.size, hashing.hash.hexdigest())
        except BaseException:
            stream.discard()
            raise
        self._files[name] = FileEntry(name=name, size=hashing.size, sha256=hashing.hash.hexdigest())

    def adopt(self, url: str, entry: FileEntry) -> None:
        """Take a finished file that lies elsewhere in this storage, of known content, as `entry.name`.

        On a local disk it gets a second name and no copy is made, so nobody may change it; an object store copies it on
        its own side. Its content is verified as that of all files: when the attempt is published.

        Raises:
            ValueError: as `open`.
            StorageError: the file is gone, or the disk is full or read-only.
        """
        self._require_new(entry.name)
        filesystem, path = open_filesystem(read_url(url))
        target = f"{self._path}/{entry.name}"
        with storage_errors("write", f"{self.url}/{entry.name}"):
            self._filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
            if not isinstance(filesystem, LocalFileSystem):
                filesystem.cp_file(path, target)
            else:
                try:
                    os.link(path, target)
                except OSError as error:
                    if error.errno not in CANNOT_LINK:
                        raise
                    shutil.copyfile(path, target)
        self._files[entry.name] = entry

    @contextmanager
    def scratch_folder(self) -> Iterator[Path]:
        """An empty folder on a local disk for what exceeds memory; it goes, with all in it, when the block ends.

        Under a local root it lies hidden in the attempt's folder, so what a killed process leaves goes with the attempt
        (`ArtifactStore.clear` and `sweep`). Beside an object store it is a temporary folder (TMPDIR).

        Raises:
            StorageError: the disk is full or read-only.
        """
        parent = self._path if isinstance(self._filesystem, LocalFileSystem) else None
        with storage_errors("make a scratch folder in", parent or tempfile.gettempdir()):
            if parent is not None:
                os.makedirs(parent, exist_ok=True)
            folder = tempfile.TemporaryDirectory(dir=parent, prefix=".scratch-")
        with folder as path:
            yield Path(path)

    def write_json(self, name: str, value: Any) -> None:
        """Write a value as indented JSON with sorted keys."""
        with self.open(name) as stream:
            stream.write(json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n")

    def _require_new(self, name: str) -> None:
        if name.startswith("/") or any(part.startswith(".") or not part for part in name.split("/")):
            raise ValueError(f"{name!r} can't name a file of an artifact: no absolute names, no hidden parts")
        if name in self._files:
            raise ValueError(f"{name!r} was already written by this attempt")

    def _create(self, path: str) -> IO[bytes]:
        self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        return self._filesystem.open(path, "wb")  # type: ignore[no-any-return]


class DiscardingWriter(Writer):
    """The writer of a gang's other ranks: it takes the same names and bytes as rank 0's and keeps none."""

    def _create(self, path: str) -> IO[bytes]:
        return open(os.devnull, "wb")


class _HashingStream(io.RawIOBase):
    """Passes bytes on and keeps their SHA-256 and count. Not seekable, so the hash is of what was stored."""

    def __init__(self, stream: NewFile) -> None:
        self._stream = stream
        self._position = 0
        self.hash = hashlib.sha256()

    @property
    def size(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._stream.write(view)
        self.hash.update(view)
        self._position += len(view)
        return len(view)

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._position
