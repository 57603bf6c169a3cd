"""Checkpoints of a running job: complete or invisible, newest committed one wins.

A checkpoint is a folder of its own: files first, `COMMITTED.json` last. The marker holds each file's size and
hash, so a folder that a killed process left half-written, or that the disk lost a part of, is not a checkpoint.
Each save takes a fresh folder, so an attempt that lost its lease can't tear the checkpoint of its successor.

safetensors and not orbax: the whole state lies on one host here, saving takes 0.05 s against 0.38 s and importing nothing
against 500 MB of memory (139 MB state, CPU), and every file goes through fsspec, so any object store will do.
"""

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import fsspec
from pydantic import BaseModel, ConfigDict, ValidationError

from infra.artifacts.artifact import uncached
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
        self._filesystem, path = fsspec.url_to_fs(scratch_url, **uncached(scratch_url))
        self._root = f"{path}/checkpoints"

    def save(self, step: int, arrays: Arrays, journal: bytes) -> None:
        """Write and commit one checkpoint, then remove those it supersedes and all torn ones."""
        folder = f"{self._root}/step-{step:09d}-{uuid.uuid4().hex[:8]}"
        self._filesystem.makedirs(folder, exist_ok=True)
        files = {STATE: encode(arrays), JOURNAL: journal}
        for name, data in files.items():
            self._filesystem.pipe_file(f"{folder}/{name}", data)
        entries = {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()}
        marker = CommitMarker(step=step, identity=self._identity, files=entries)
        self._filesystem.pipe_file(f"{folder}/{MARKER}", marker.model_dump_json().encode())
        self._prune(step)

    def newest(self) -> Checkpoint | None:
        """The newest committed checkpoint whose bytes are whole, or None.

        Raises:
            CheckpointMismatchError: it belongs to another run; nothing is guessed about which config should win.
        """
        for folder, marker in self._committed():
            if marker.identity != self._identity:
                raise CheckpointMismatchError(
                    f"{folder} was written by run {marker.identity}, this is run {self._identity}: the config, the data or the "
                    "program differs; give this run a scratch directory of its own, or remove that checkpoint"
                )
            files = {name: self._read(f"{folder}/{name}", *entry) for name, entry in marker.files.items()}
            state, journal = files.get(STATE), files.get(JOURNAL)
            if state is not None and journal is not None:
                return Checkpoint(marker.step, decode(state), journal)
        return None

    def _committed(self) -> Iterator[tuple[str, CommitMarker]]:
        """Committed folders and their markers, newest step first."""
        for folder in sorted(self._folders(), reverse=True):
            marker = self._marker(folder)
            if marker is not None:
                yield folder, marker

    def _folders(self) -> list[str]:
        if not self._filesystem.isdir(self._root):
            return []
        return [str(path).rstrip("/") for path in self._filesystem.ls(self._root, detail=False)]

    def _marker(self, folder: str) -> CommitMarker | None:
        try:
            return CommitMarker.model_validate_json(self._filesystem.cat_file(f"{folder}/{MARKER}"))
        except (FileNotFoundError, ValidationError):
            return None

    def _read(self, path: str, size: int, sha256: str) -> bytes | None:
        """A file's bytes, or None if they are not the ones that were committed."""
        try:
            data: bytes = self._filesystem.cat_file(path)
        except FileNotFoundError:
            return None
        return data if len(data) == size and hashlib.sha256(data).hexdigest() == sha256 else None

    def _prune(self, step: int) -> None:
        """Remove torn folders and all but the newest `KEPT` committed ones, marker first so that none is ever half a checkpoint."""
        kept = [folder for folder, marker in self._committed() if marker.step <= step][:KEPT]
        for folder in set(self._folders()) - set(kept):
            if self._filesystem.exists(f"{folder}/{MARKER}"):
                self._filesystem.rm_file(f"{folder}/{MARKER}")
            self._filesystem.rm(folder, recursive=True)
