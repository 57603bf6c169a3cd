"""A reader's view: one manifest, pinned. What is added, compacted or sealed later changes nothing in it."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import IO, Any

import pyarrow as pa

from infra.archive.blobs import BLOBS
from infra.archive.errors import CorruptArchiveError
from infra.archive.manifest import Manifest, Shard, TableState
from infra.archive.shards import read_batches
from infra.archive.tables import COMMIT_COLUMN
from infra.storage.objects import sha256_of
from infra.storage.streams import open_file
from infra.storage.users import resolve

ROWS_PER_BATCH = 8_192


class Snapshot:
    """The archive at `url` after commit `manifest.number`."""

    def __init__(self, url: str, manifest: Manifest) -> None:
        self.url = url
        self._manifest = manifest

    @property
    def number(self) -> int:
        """The newest commit in it."""
        return self._manifest.number

    @property
    def sealed(self) -> bool:
        return self._manifest.sealed

    @property
    def tables(self) -> tuple[str, ...]:
        """Names, sorted; the archive's own table of blobs is not among them."""
        return tuple(sorted(self._manifest.tables.keys() - {BLOBS.name}))

    def schema(self, table: str) -> pa.Schema:
        """The columns of a table, those of older shards and those that came later."""
        return self._state(table).table(table).schema

    def key(self, table: str) -> tuple[str, ...]:
        return self._state(table).key

    def rows(self, table: str) -> int:
        return sum(shard.rows for shard in self._state(table).shards)

    def shard_urls(self, table: str) -> tuple[str, ...]:
        """The Parquet files of a table, for any reader of Parquet.

        Older ones lack columns that came later: `union_by_name` in DuckDB, `how="diagonal"` in polars.
        """
        return tuple(resolve(f"{self.url}/{shard.file}") for shard in self._state(table).shards)

    def batches(
        self, table: str, columns: Sequence[str] | None = None, *, after: int = -1, rows: int = ROWS_PER_BATCH
    ) -> Iterator[pa.RecordBatch]:
        """Stream a table in the order of its commits, in each in the order in which its writer appended.

        One row group of the chosen columns is held at a time, however large the table.

        Args:
            columns: names, in order; all of the table's if None. `_commit` is the commit that added a row.
            after: rows of this commit and earlier ones are left out: a follower passes the `number` of its last snapshot.
            rows: at most, in a batch.

        Raises:
            KeyError: no such table or column.
            SnapshotExpiredError: its shards were compacted and collected since.
            CorruptArchiveError: a shard is not what was committed.
        """
        schema = self._projected(table, columns)
        for shard in self._state(table).shards:
            if shard.last_commit > after:
                yield from read_batches(self.url, shard, schema, after, rows)

    def read(self, table: str, columns: Sequence[str] | None = None, *, after: int = -1) -> pa.Table:
        """As `batches`, all in memory."""
        return pa.Table.from_batches(self.batches(table, columns, after=after), schema=self._projected(table, columns))

    @cached_property
    def blobs(self) -> dict[str, int]:
        """Names of all blobs, with their bytes, in the order of their commits."""
        return {name: size for name, (_, size) in self._blob_files.items()}

    def open_blob(self, name: str) -> IO[bytes]:
        """Open a blob for reading, seekable.

        Raises:
            FileNotFoundError: there is none of this name.
        """
        return open_file(self.blob_url(name))

    def blob_url(self, name: str) -> str:
        """Where a blob lies; raises FileNotFoundError if there is none of this name."""
        if name not in self._blob_files:
            raise FileNotFoundError(f"{self.url} has no blob {name!r} in commit {self.number}; it has {len(self._blob_files)} others")
        return f"{self.url}/{self._blob_files[name][0]}"

    def verify(self) -> None:
        """Read every shard and blob back and compare it with what was committed.

        Raises:
            CorruptArchiveError: names the first file that is missing or different.
        """
        shards = [(shard.file, shard.size, shard.sha256) for state in self._manifest.tables.values() for shard in state.shards]
        for file, size, sha256 in [*shards, *self._blob_rows()]:
            try:
                intact = sha256_of(f"{self.url}/{file}", size) == sha256
            except FileNotFoundError:
                intact = False
            if not intact:
                raise CorruptArchiveError(f"{self.url}/{file} is missing or is not what was committed; restore it")

    def shards(self, table: str) -> tuple[Shard, ...]:
        """What the manifest says about the files of a table."""
        return self._state(table).shards

    @cached_property
    def _blob_files(self) -> dict[str, tuple[str, int]]:
        if BLOBS.name not in self._manifest.tables:
            return {}
        found = (row for batch in self.batches(BLOBS.name) for row in batch.to_pylist())
        return {row["name"]: (row["file"], row["size"]) for row in found}

    def _blob_rows(self) -> Iterator[tuple[Any, ...]]:
        if BLOBS.name in self._manifest.tables:
            for batch in self.batches(BLOBS.name, ["file", "size", "sha256"]):
                yield from ((row["file"], row["size"], row["sha256"]) for row in batch.to_pylist())

    def _projected(self, table: str, columns: Sequence[str] | None) -> pa.Schema:
        schema = self.schema(table)
        if columns is None:
            return schema
        fields = []
        for name in columns:
            if name == COMMIT_COLUMN:
                fields.append(pa.field(name, pa.int64(), nullable=False))
            elif name in schema.names:
                fields.append(schema.field(name))
            else:
                raise KeyError(f"{self.url}: table {table!r} has no column {name!r}; it has {', '.join(schema.names)}")
        return pa.schema(fields)

    def _state(self, table: str) -> TableState:
        if table not in self._manifest.tables:
            raise KeyError(f"{self.url}: commit {self.number} has no table {table!r}; it has {', '.join(self.tables) or 'none'}")
        return self._manifest.tables[table]
