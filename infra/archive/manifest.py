"""The manifest chain: numbered, immutable, each one the whole state of the archive.

    {archive}/.manifest-00000012.json

Number n + 1 is created exclusively by somebody who read number n; so each commit has one winner, and there are no gaps.
A number once taken stays taken: what `collect` removes leaves a tombstone, or a writer that slept could fork history.
"""

import json
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from infra.archive.errors import ArchiveNotFoundError, CorruptArchiveError
from infra.archive.tables import Table, decoded, encoded
from infra.artifacts.manifest import canonical_json
from infra.storage.objects import create_exclusive, list_names, read_or_none, replace

MANIFEST_FILE = re.compile(r"\.manifest-(\d{8})\.json")
TOMBSTONE_BYTES = 100  # at most; every manifest is longer
LOOKS = 5  # a listing may be overtaken by `collect`, once; more than that is a broken chain


class Shard(BaseModel):
    """One Parquet file and the sidecar of its keys; names are relative to the archive.

    Rows of a shard lie in the order of their commits. `first_commit` and `last_commit` bound them; where they differ
    (a compacted shard), the file's footer has the runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    size: int
    sha256: str
    rows: int
    keys_sha256: str
    first_commit: int
    last_commit: int

    @property
    def keys_file(self) -> str:
        return f"{self.file.removesuffix('.parquet')}.keys"

    @property
    def files(self) -> tuple[str, str]:
        return self.file, self.keys_file


class TableState(BaseModel):
    """A table and its shards, in the order in which a reader gets them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: tuple[str, ...]
    columns: dict[str, str]  # for people; `arrow` decides
    arrow: str
    shards: tuple[Shard, ...] = ()

    @classmethod
    def of(cls, table: Table, shards: tuple[Shard, ...]) -> "TableState":
        columns = {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in table.schema}
        return cls(key=table.key, columns=columns, arrow=encoded(table.schema), shards=shards)

    def table(self, name: str) -> Table:
        return Table(name, decoded(self.arrow), self.key)


class Retired(BaseModel):
    """A file that the commit `since` replaced. Snapshots before it still read it, so it stays until it is collected."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    since: int


class Manifest(BaseModel):
    """The archive after commit `number`.

    Attributes:
        uid: of the transaction that made it; by it a writer knows its own success again.
        writer, at: who and when, for people.
        fenced: uids that may never commit: `collect` took them for dead.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1  # raised when an older reader would misunderstand it
    number: int
    uid: str
    writer: str
    at: str
    tables: dict[str, TableState] = {}
    sealed: bool = False
    retired: tuple[Retired, ...] = ()
    fenced: tuple[str, ...] = ()

    @property
    def files(self) -> set[str]:
        """Shards and sidecars of this state; blobs are rows, and not among them."""
        return {file for state in self.tables.values() for shard in state.shards for file in shard.files}


class Tombstone(BaseModel):
    """What is left of a collected manifest: its number, and whose it was."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    uid: str
    collected: Literal[True] = True


_stored: TypeAdapter[Manifest | Tombstone] = TypeAdapter(Manifest | Tombstone)
GENESIS = Manifest(number=0, uid="0" * 16, writer="", at="")


def manifest_url(url: str, number: int) -> str:
    return f"{url}/.manifest-{number:08d}.json"


def begin(url: str) -> None:
    """Make an empty archive unless one is there. Equal bytes for everybody, so everybody succeeds.

    Raises:
        PermanentStorageError: this storage has no conditional create, or can't be written.
    """
    if not create(url, GENESIS) and read(url, 0) is None:
        raise CorruptArchiveError(f"{manifest_url(url, 0)} was removed while the archive was opened; run again")


def create(url: str, manifest: Manifest) -> bool:
    """Take the manifest's number; False if somebody else has it."""
    return create_exclusive(manifest_url(url, manifest.number), canonical_json(manifest.model_dump(mode="json")))


def bury(url: str, manifest: Manifest) -> None:
    """Put a tombstone in the place of an old manifest."""
    replace(manifest_url(url, manifest.number), canonical_json(Tombstone(number=manifest.number, uid=manifest.uid).model_dump(mode="json")))


def read(url: str, number: int) -> Manifest | Tombstone | None:
    """What lies under a number, or None.

    Raises:
        CorruptArchiveError: it is no manifest.
    """
    stored = read_or_none(manifest_url(url, number))
    if stored is None:
        return None
    try:
        found = _stored.validate_python(json.loads(stored))
    except (ValueError, ValidationError) as error:
        raise CorruptArchiveError(
            f"{manifest_url(url, number)} is no manifest that this version reads ({error}); was it written by a newer one?"
        ) from error
    if found.number != number:
        raise CorruptArchiveError(f"{manifest_url(url, number)} is number {found.number}; it was copied there by hand, remove it")
    return found


def latest(url: str, known: Manifest | None = None) -> Manifest:
    """The newest manifest. `known` is one that the caller has: if no newer one exists, one request says so.

    Raises:
        ArchiveNotFoundError: there is no archive.
    """
    if known is not None and (found := read(url, known.number + 1)) is None:
        return known
    for _ in range(LOOKS):
        numbers = [int(match[1]) for name in list_names(url) if (match := MANIFEST_FILE.fullmatch(name))]
        if not numbers:
            raise ArchiveNotFoundError(f"no archive lies at {url}; check the URL, or write to it first")
        found = read(url, max(numbers))
        if isinstance(found, Manifest):
            return found
    raise CorruptArchiveError(f"{url}: the newest manifest is a tombstone or can't be read; was a part of the archive copied or removed?")
