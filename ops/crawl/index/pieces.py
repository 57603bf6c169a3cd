"""Durable pieces of work: each is there whole or not at all, and is made once, whoever is killed in between.

They lie in a job's scratch space, which outlives its attempts. A piece's files are written into a folder of their own;
one small record, created last and only once, names that folder. So a reader never sees half a piece, a second run finds
what the first one committed, and a zombie's late work is left lying, not read.
"""

import uuid
from collections.abc import Mapping
from typing import IO, Any

from pydantic import BaseModel, ConfigDict

from infra.artifacts.manifest import FileEntry
from infra.artifacts.writer import Writer
from infra.storage.objects import create_exclusive, persist, read_or_none
from infra.storage.streams import open_file


class Piece(BaseModel):
    """What was committed: where its files lie, what they are, and what the work counted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    files: tuple[FileEntry, ...]
    about: dict[str, Any]

    def open(self, name: str) -> IO[bytes]:
        """Open a file of the piece for reading, seekable."""
        return open_file(f"{self.url}/{name}")

    def sha256_of(self, name: str) -> str:
        """What the file's content was when it was committed."""
        return next(entry.sha256 for entry in self.files if entry.name == name)


class Pieces:
    """The pieces below one URL, by key (letters, digits, `-`)."""

    def __init__(self, url: str) -> None:
        self._url = url

    def find(self, key: str) -> Piece | None:
        """The committed piece of a key, or None."""
        stored = read_or_none(self._record(key))
        return None if stored is None else Piece.model_validate_json(stored)

    def begin(self, key: str) -> Writer:
        """Where one try at a piece writes its files."""
        url = f"{self._url}/{key}/{uuid.uuid4().hex[:16]}"
        return Writer(url, scratch_url=url)

    def commit(self, key: str, out: Writer, about: Mapping[str, Any]) -> Piece:
        """Make what `out` wrote the piece of this key.

        Returns:
            The piece: ours, or the one that somebody else committed before.
        """
        persist(out.url)
        piece = Piece(url=out.url, files=out.files, about=dict(about))
        if create_exclusive(self._record(key), piece.model_dump_json(indent=1).encode()):
            return piece
        committed = self.find(key)
        assert committed is not None, f"{self._record(key)} was there a moment ago"
        return committed

    def _record(self, key: str) -> str:
        return f"{self._url}/{key}.json"
