"""Checkpoints of a running job: complete or invisible, newest committed one wins.

A checkpoint is a folder of its own: files first, `COMMITTED.json` last. The marker holds each file's size and
hash, so a folder that a killed process left half-written, or that the disk lost a part of, is not a checkpoint.
Each save takes a fresh folder, so an attempt that lost its lease can't tear the checkpoint of its successor.

safetensors and not orbax: the whole state lies on one host here, saving takes 0.05 s against 0.38 s and importing nothing
against 500 MB of memory (139 MB state, CPU), and every file goes through `infra.storage`, so any object store will do: large
states in parts, errors typed and transient ones tried again.
"""

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError

from infra.storage.filesystem import open_filesystem
from infra.storage.objects import list_names, persist, read_or_none, remove_tree, replace
from infra.storage.streams import new_file
from infra.storage.users import write_url
from model.arrays import Arrays, decode, encode

MARKER = "COMMITTED.json"
STATE = "state.safetensors"
JOURNAL = "journal.json"
KEPT = 2  # the newest may have lost bytes in a crash of the machine; one older is cheaper than starting again


class CheckpointMismatchError(ValueError):
    """A checkpoint was written by a run with another configuration or other data."""


class CommitMarker(BaseModel):
    """What makes a folder a checkpoint. `identity` says whose: config, data and program."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    identity: str
    files: dict[str, tuple[int, str]]


@dataclass(frozen=True)
class Checkpoint:
    """A restored checkpoint: the state before step `step`, and the rows logged up to there."""

    step: int
    arrays: Arrays
    journal: bytes


class CheckpointStore:
    """The checkpoints of one run under `{scratch_url}/checkpoints`."""

    def __init__(self, scratch_url: str, identity: str) -> None:
        self._identity = identity
        self._root = f"{scratch_url.rstrip('/')}/checkpoints"

    def save(self, step: int, arrays: Arrays, journal: bytes) -> None:
        """Write and commit one checkpoint, then remove those it supersedes and all torn ones.

        Raises:
            StorageError: the disk is full, read-only, or does not answer. What was committed before is still there.
        """
        folder = f"{self._root}/step-{step:09d}-{uuid.uuid4().hex[:8]}"
        files = {STATE: encode(arrays), JOURNAL: journal}
        entries = {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()}
        _write(f"{folder}/{STATE}", files[STATE], entries[STATE][1])
        replace(f"{folder}/{JOURNAL}", journal)
        persist(folder)  # the marker must not survive a power loss that what it promises doesn't
        marker = CommitMarker(step=step, identity=self._identity, files=entries)
        replace(f"{folder}/{MARKER}", marker.model_dump_json().encode())
        self._prune(step)

    def newest(self) -> Checkpoint | None:
        """The newest committed checkpoint whose bytes are whole, or None.

        Raises:
            CheckpointMismatchError: it belongs to another run; nothing is guessed about which config should win.
            StorageError: storage does not answer. That is no missing checkpoint: a run must not begin again because of it.
        """
        for folder, marker in self._committed():
            if marker.identity != self._identity:
                raise CheckpointMismatchError(
                    f"{folder} was written by run {marker.identity}, this is run {self._identity}: the config, the data or the "
                    "program differs; give this run a scratch directory of its own, or remove that checkpoint"
                )
            files = {name: _read(f"{folder}/{name}", *entry) for name, entry in marker.files.items()}
            state, journal = files.get(STATE), files.get(JOURNAL)
            if state is not None and journal is not None:
                return Checkpoint(marker.step, decode(state), journal)
        return None

    def _committed(self) -> Iterator[tuple[str, CommitMarker]]:
        """Committed folders and their markers, newest step first."""
        for folder in sorted(self._folders(), reverse=True):
            marker = _marker(folder)
            if marker is not None:
                yield folder, marker

    def _folders(self) -> list[str]:
        return [f"{self._root}/{name}" for name in list_names(self._root)]

    def _prune(self, step: int) -> None:
        """Remove torn folders and all but the newest `KEPT` committed ones, marker first so that none is ever half a checkpoint."""
        kept = [folder for folder, marker in self._committed() if marker.step <= step][:KEPT]
        for folder in sorted(set(self._folders()) - set(kept)):
            remove_tree(f"{folder}/{MARKER}")
            remove_tree(folder)


def _write(url: str, data: bytes, sha256: str) -> None:
    """A file of any size, in parts where storage takes parts."""
    filesystem, path = open_filesystem(write_url(url))
    stream = new_file(filesystem, path, url)
    try:
        stream.write(memoryview(data))
        stream.commit(len(data), sha256)
    except BaseException:
        stream.discard()
        raise


def _read(url: str, size: int, sha256: str) -> bytes | None:
    """A file's bytes, or None if they are not the ones that were committed."""
    data = read_or_none(url)
    return data if data is not None and len(data) == size and hashlib.sha256(data).hexdigest() == sha256 else None


def _marker(folder: str) -> CommitMarker | None:
    data = read_or_none(f"{folder}/{MARKER}")
    try:
        return None if data is None else CommitMarker.model_validate_json(data)
    except ValidationError:
        return None
