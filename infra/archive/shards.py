"""Shards: Parquet files that any reader of Parquet reads, written once, read as a stream of record batches."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infra.archive import keys
from infra.archive.errors import CorruptArchiveError, SnapshotExpiredError
from infra.archive.manifest import Shard
from infra.archive.tables import COMMIT_COLUMN, Table, widened
from infra.artifacts.writer import Writer
from infra.storage.streams import open_file

ROWS_PER_GROUP = 8_192  # a reader holds one group of the columns that it asked for
GROUP_BYTES = 16 * 1024 * 1024  # in Arrow; groups of long texts have fewer rows
RUNS_KEY = b"seaway.commits"

Runs = tuple[tuple[int, int], ...]
"""(commit, rows) of a shard's rows, in order."""


class NewShard:
    """A shard that is being written: rows go in batch by batch, and whole row groups to storage.

    Args:
        out: writes below the transaction's folder, `folder`, which is relative to the archive.
        runs: for a compacted shard, which commits its rows came from.
    """

    def __init__(self, out: Writer, folder: str, name: str, table: Table, runs: Runs = ()) -> None:
        self.table = table
        self.rows = 0
        self._out, self._folder, self._name, self._runs = out, folder, name, runs
        self._digests: list[keys.Digests] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._files = ExitStack()
        self._stream = self._files.enter_context(out.open(f"{name}.parquet"))
        schema = table.schema.with_metadata({RUNS_KEY: json.dumps(runs)}) if runs else table.schema
        self._parquet = self._files.enter_context(pq.ParquetWriter(self._stream, schema, compression="zstd", compression_level=3))

    @property
    def size(self) -> int:
        """Bytes in storage so far."""
        return self._stream.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows that have exactly the table's columns."""
        rows = max(1, min(ROWS_PER_GROUP, GROUP_BYTES * batch.num_rows // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            self._digests.append(keys.digests_of(piece, self.table.key))
            self._waiting.append(piece)
            self._waiting_rows += piece.num_rows
            self._waiting_bytes += piece.nbytes
            self.rows += piece.num_rows
            if self._waiting_rows >= ROWS_PER_GROUP or self._waiting_bytes >= GROUP_BYTES:
                self._flush()

    def close(self) -> tuple[Shard, keys.Digests]:
        """Finish the file and its sidecar; the shard (its commit not known yet: 0) and its keys in the rows' order."""
        self._flush()
        self._files.close()
        digests = np.concatenate([keys.empty(), *self._digests], axis=1)
        sidecar = keys.to_bytes(digests)
        with self._out.open(f"{self._name}.keys") as stream:
            stream.write(sidecar)
        (entry,) = (entry for entry in self._out.files if entry.name == f"{self._name}.parquet")
        shard = Shard(
            file=f"{self._folder}/{entry.name}",
            size=entry.size,
            sha256=entry.sha256,
            rows=self.rows,
            keys_sha256=keys.sha256(sidecar),
            first_commit=self._runs[0][0] if self._runs else 0,
            last_commit=self._runs[-1][0] if self._runs else 0,
        )
        return shard, digests

    def abandon(self, error: BaseException) -> None:
        """Drop what was written."""
        self._files.__exit__(type(error), error, error.__traceback__)

    def _flush(self) -> None:
        if self._waiting:
            group = pa.Table.from_batches(self._waiting, schema=self.table.schema).combine_chunks()
            self._parquet.write_table(group, row_group_size=group.num_rows)
            self._waiting.clear()
            self._waiting_rows = self._waiting_bytes = 0


def read_runs(url: str, shard: Shard) -> Runs:
    """Which commits the rows of a shard came from."""
    if shard.first_commit == shard.last_commit:
        return ((shard.first_commit, shard.rows),)
    with _opened(url, shard) as file:
        return _runs(url, shard, file)


def read_batches(url: str, shard: Shard, schema: pa.Schema, after: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Rows of a shard that were committed after `after`, with the columns of `schema`, `_commit` among them if asked for.

    Raises:
        SnapshotExpiredError: the shard was collected.
        CorruptArchiveError: it is not what was committed.
    """
    with _opened(url, shard) as file:
        commits = None
        if COMMIT_COLUMN in schema.names or after >= shard.first_commit:
            runs = _runs(url, shard, file)
            commits = np.repeat(np.array([run[0] for run in runs], np.int64), [run[1] for run in runs])
        stored_names = set(file.schema_arrow.names)
        present = [name for name in schema.names if name in stored_names]
        start = 0
        for batch in _batches(file, present, rows, shard):
            stored = commits[start : start + batch.num_rows] if commits is not None else None
            start += batch.num_rows
            if stored is not None:
                if COMMIT_COLUMN in schema.names:
                    batch = batch.append_column(COMMIT_COLUMN, pa.array(stored))
                if after >= shard.first_commit:
                    batch = batch.filter(pa.array(stored > after))
            if batch.num_rows:
                yield widened(batch, schema)
    if start != shard.rows:
        raise CorruptArchiveError(f"{url}/{shard.file} has {start} rows, not {shard.rows}; restore it")


def read_keys(url: str, shards: Sequence[Shard], table: Table, position: int) -> dict[str, str | int]:
    """The key of one row, by its position in the shards' rows; for the sentence that refuses it."""
    schema = pa.schema([table.schema.field(name) for name in table.key])
    for shard in shards:
        if position >= shard.rows:
            position -= shard.rows
            continue
        for batch in read_batches(url, shard, schema, -1, ROWS_PER_GROUP):
            if position < batch.num_rows:
                return dict(batch.slice(position, 1).to_pylist()[0])
            position -= batch.num_rows
    raise CorruptArchiveError(f"{url}: the shards of table {table.name!r} have fewer rows than were written; write them again")


def _opened(url: str, shard: Shard) -> Any:
    try:
        stream = open_file(f"{url}/{shard.file}")
    except FileNotFoundError as error:
        raise SnapshotExpiredError(f"{url}/{shard.file} was compacted away and collected; take a new snapshot") from error
    return _Closing(stream)


class _Closing:
    """A Parquet file that takes its stream with it: pyarrow leaves streams that it was given open."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __enter__(self) -> pq.ParquetFile:
        try:
            self._file = pq.ParquetFile(self._stream)
        except BaseException:
            self._stream.close()
            raise
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._stream.close()


def _batches(file: pq.ParquetFile, present: list[str], rows: int, shard: Shard) -> Iterator[pa.RecordBatch]:
    if present:
        yield from file.iter_batches(batch_size=rows, columns=present)
        return
    for start in range(0, shard.rows, rows):  # all columns that were asked for came later than this shard
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * min(rows, shard.rows - start), pa.struct([])))


def _runs(url: str, shard: Shard, file: pq.ParquetFile) -> Runs:
    if shard.first_commit == shard.last_commit:
        return ((shard.first_commit, shard.rows),)
    stored = (file.schema_arrow.metadata or {}).get(RUNS_KEY)
    runs: Runs = tuple((int(commit), int(rows)) for commit, rows in json.loads(stored)) if stored else ()
    if sum(rows for _, rows in runs) != shard.rows:
        raise CorruptArchiveError(f"{url}/{shard.file}: its footer does not say which commits its rows came from; restore it")
    return runs
