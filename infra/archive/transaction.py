"""Transactions: rows and blobs of several tables, committed by one manifest or not at all."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Literal, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa

from infra.archive import keys
from infra.archive.blobs import BLOBS, blob_uri
from infra.archive.chain import Chain
from infra.archive.errors import ArchiveError, DuplicateKeyError, FencedError, SealedError, SnapshotExpiredError
from infra.archive.manifest import Manifest, Shard, TableState
from infra.archive.shards import NewShard, read_keys
from infra.archive.tables import Table, conformed, merged
from infra.artifacts.writer import Writer
from infra.storage.errors import StorageError
from infra.storage.objects import persist, remove_tree

SHARD_BYTES = 256 * 1024 * 1024
COMMIT_PREFIX = "commit-"

type Rows = pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch]


def minted() -> str:
    return uuid4().hex[:16]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Transaction:
    """What one writer adds in one step. For one thread; as many transactions at once as one likes.

    As a context manager it commits at the end of the block, and drops everything if the block raises.
    Files lie under `commit-{uid}/` of the archive, seen by nobody before the manifest names them.

    Args:
        on_commit: called with the number of the commit once everything is visible.
    """

    def __init__(self, chain: Chain, writer: str, on_commit: Callable[[int], object] = lambda number: None) -> None:
        self.uid = minted()
        self._chain, self._writer, self._at = chain, writer, now()
        self._on_commit = on_commit
        self._folder = f"{COMMIT_PREFIX}{self.uid}"
        self._url = f"{chain.url}/{self._folder}"
        self._out = Writer(self._url, scratch_url=f"{self._url}/scratch")
        self._tables: dict[str, _Pending] = {}
        self._blobs: list[str] = []
        self._state: Literal["open", "prepared", "dropped"] = "open"

    def append(self, table: Table, rows: Rows) -> None:
        """Add rows to a table, which is made, or gets new columns, if need be.

        Args:
            rows: columns by name; nullable ones may be missing. Streamed: of batches one after another, one is held.

        Raises:
            SchemaConflictError: the rows do not fit the declaration, or it does not fit an earlier one of this transaction.
                Against what is committed it is checked at the commit.
            FencedError: this transaction took so long that its files were collected; it is dropped.
        """
        if table.name == BLOBS.name:
            raise ArchiveError(f"table {BLOBS.name!r} is the archive's own; use put_blob, or choose another name")
        self._append(table, rows)

    def put_blob(self, name: str, data: bytes) -> str:
        """Add a file; its `archive://` URI, for a column."""
        with self.open_blob(name) as stream:
            stream.write(data)
        return blob_uri(name)

    @contextmanager
    def open_blob(self, name: str) -> Iterator[IO[bytes]]:
        """As `put_blob`, for large ones: a stream to write to.

        Raises:
            ValueError: the name is absolute, has a hidden part, or was given in this transaction already.
        """
        self._require_open()
        is_written = False
        try:
            with self._out.open(f"{BLOBS.name}/{name}") as stream:
                yield stream
                is_written = True
        except FileNotFoundError as error:
            if not is_written:  # the block's own
                raise
            self.discard()
            raise self._fenced() from error
        self._blobs.append(f"{BLOBS.name}/{name}")

    def prepare(self) -> None:
        """Finish the files and prove the transaction's own keys unique: all that is left for `commit` is the manifest.

        If it fails, the transaction is dropped.

        Raises:
            DuplicateKeyError: a key occurs twice.
            FencedError: files were collected while they were written.
            StorageError: a file could not be written.
        """
        if self._state == "prepared":
            return
        self._require_open()
        try:
            self._add_blobs()
            for pending in self._tables.values():
                pending.finish()
                if (position := keys.first_repeated(pending.digests)) is not None:
                    raise self._duplicate(pending, position, "occurs twice in this transaction; drop one of the rows")
            if self._out.files:
                persist(self._url)
        except FileNotFoundError as error:
            self.discard()
            raise self._fenced() from error
        except BaseException:
            self.discard()
            raise
        self._state = "prepared"

    def commit(self) -> int:
        """Make everything visible at once.

        Returns:
            The number of the commit; of the newest one where there was nothing to add.

        Raises:
            DuplicateKeyError: a key occurs twice, or is committed.
            SchemaConflictError: a table does not fit the one that is committed.
            SealedError: the archive is sealed.
            FencedError: this transaction took so long that its files were collected.
            StorageError: a file could not be written, and the transaction is dropped (see `prepare`); or storage stayed away at
                the commit itself, and whether it is committed is unknown: then call again.
        """
        self.prepare()
        try:
            if not self._tables:
                return self._chain.latest().number
            number = self._chain.extend(self.uid, self._added_to)
        except ArchiveError:
            self.discard()
            raise
        self._on_commit(number)
        return number

    def discard(self) -> None:
        """Drop everything, unless it is or may be committed."""
        if self._chain.is_unsettled(self.uid):
            return
        for pending in self._tables.values():
            pending.abandon()
        self._state = "dropped"
        with suppress(StorageError):  # what storage keeps while it is away goes with `collect`
            remove_tree(self._url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.commit()
        else:
            self.discard()

    def _add_blobs(self) -> None:
        if not self._blobs:
            return
        wanted = set(self._blobs)
        rows = [
            {
                "name": entry.name.removeprefix(f"{BLOBS.name}/"),
                "file": f"{self._folder}/{entry.name}",
                "size": entry.size,
                "sha256": entry.sha256,
            }
            for entry in self._out.files
            if entry.name in wanted
        ]
        self._append(BLOBS, pa.RecordBatch.from_pylist(rows, BLOBS.schema))

    def _append(self, table: Table, rows: Rows) -> None:
        self._require_open()
        known = self._tables.get(table.name)
        if known is None:
            pending = self._tables[table.name] = _Pending(self._out, self._folder, table)
        else:
            pending = known
            declared = merged(known.table, table)
            with self._own_files():
                pending.declare(declared)
        for batch in [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches() if isinstance(rows, pa.Table) else rows:
            fitting = conformed(pending.table, batch)
            with self._own_files():
                pending.write(fitting)

    @contextmanager
    def _own_files(self) -> Iterator[None]:
        """A file of the transaction that vanishes inside the block was collected."""
        try:
            yield
        except FileNotFoundError as error:
            self.discard()
            raise self._fenced() from error

    def _added_to(self, base: Manifest) -> Manifest:
        if base.sealed:
            raise SealedError(f"{self._chain.url} is sealed: nothing can be added; write to another archive")
        if self.uid in base.fenced:
            raise self._fenced()
        number = base.number + 1
        tables = dict(base.tables)
        for name, pending in self._tables.items():
            state = base.tables.get(name)
            table = merged(state.table(name), pending.table) if state else pending.table
            self._prove_new(pending, state.shards if state else ())
            mine = tuple(shard.model_copy(update={"first_commit": number, "last_commit": number}) for shard in pending.shards)
            tables[name] = TableState.of(table, (*(state.shards if state else ()), *mine))
        return Manifest(
            number=number, uid=self.uid, writer=self._writer, at=self._at, tables=tables, retired=base.retired, fenced=base.fenced
        )

    def _prove_new(self, pending: "_Pending", committed: tuple[Shard, ...]) -> None:
        for shard in committed:
            if shard.file in pending.proven:
                continue
            if (position := keys.first_common(pending.digests, self._chain.digests(shard))) is not None:
                raise self._duplicate(
                    pending,
                    position,
                    f"is committed already, in commits {shard.first_commit} to {shard.last_commit}; rows never change, give a new key",
                )
            pending.proven.add(shard.file)

    def _duplicate(self, pending: "_Pending", position: int, detail: str) -> DuplicateKeyError:
        try:
            key = read_keys(self._chain.url, pending.shards, pending.table, position)
        except SnapshotExpiredError as error:
            raise self._fenced() from error
        return DuplicateKeyError(pending.table.name, key, detail)

    def _fenced(self) -> FencedError:
        return FencedError(f"{self._chain.url}: transaction {self.uid} was taken for a killed one and collected; write its rows again")

    def _require_open(self) -> None:
        if self._state != "open":
            raise ArchiveError(f"{self._url}: this transaction is {self._state}; begin another one")


class _Pending:
    """Rows of one table on their way."""

    def __init__(self, out: Writer, folder: str, table: Table) -> None:
        self.table = table
        self.shards: list[Shard] = []
        self.digests = keys.empty()
        self.proven: set[str] = set()  # committed shards that have none of these keys
        self._out, self._folder = out, folder
        self._parts: list[keys.Digests] = []
        self._open: NewShard | None = None

    def declare(self, table: Table) -> None:
        """Rows that follow have the columns of `table`."""
        if not table.schema.equals(self.table.schema, check_metadata=True):
            self._close()
        self.table = table

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._open is None:
            self._open = NewShard(self._out, self._folder, f"{self.table.name}-{len(self.shards):05d}", self.table)
        self._open.write(batch)
        if self._open.size >= SHARD_BYTES:
            self._close()

    def finish(self) -> None:
        self._close()
        self.digests = np.concatenate([keys.empty(), *self._parts], axis=1)

    def abandon(self) -> None:
        if self._open is not None:
            self._open.abandon(ArchiveError("dropped"))
            self._open = None

    def _close(self) -> None:
        if self._open is not None:
            shard, digests = self._open.close()
            self._open = None
            self.shards.append(shard)
            self._parts.append(digests)
