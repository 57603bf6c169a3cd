"""Working on one shard: the same on every engine."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from infra.artifacts.writer import Writer
from infra.storage.errors import StorageError
from ops.dataflow.budget import Budget
from ops.dataflow.commits import ASIDE, FILE, Commit, Ledger
from ops.dataflow.errors import Poison
from ops.dataflow.read import read_pieces
from ops.dataflow.shard import Shard, StageFunction, Tally
from ops.row_groups import RowGroups
from ops.shards import ROWS_PER_BATCH, shard_writer

Beat = Callable[[int], None]
"""Told how many rows were done since it was told last."""

GROUP_BYTES = 16 << 20  # a group waits, is joined and is encoded; 64 MiB of tokens beside a 10-MB document broke a 1 GiB worker


@dataclass(frozen=True)
class Output:
    """What a stage writes: the schema, and the most rows and bytes of a row group (`ops.row_groups`), on which the bytes depend.

    `batch_rows` bounds what the function is given at once, and nothing else.

    `aside` names a column of truth values that the function yields behind those of the schema: rows where it is true go to a
    file of their own, in their order, and neither file has the column.
    """

    schema: pa.Schema
    group_rows: int = ROWS_PER_BATCH
    group_bytes: int = GROUP_BYTES
    batch_rows: int = ROWS_PER_BATCH
    aside: str | None = None


@dataclass(frozen=True)
class Order:
    """What a worker must know of a stage. It is pickled: the function is a frozen dataclass or a module's function.

    Attributes:
        memory_bytes: that the process may take in all.
        judges_rows: the function judges every row by itself, so the rows that poison a batch can be told from their neighbours.
    """

    stage: str
    ledger: Ledger
    function: StageFunction
    output: Output
    memory_bytes: int
    judges_rows: bool


def work(order: Order, shard: Shard, beat: Beat) -> Commit | Poison:
    """Do a shard and commit it, or find that it is committed.

    Returns:
        The commit; or what is wrong with the shard, of which then nothing is left.

    Raises:
        StorageError: disk or network are at fault, not the shard.
    """
    budget = Budget.of(order.memory_bytes)
    return work_on(order, shard, lambda: read_pieces(shard.pieces, budget.batch_bytes, order.output.batch_rows), beat)


def work_on(order: Order, shard: Shard, read: Callable[[], Iterator[pa.RecordBatch]], beat: Beat) -> Commit | Poison:
    """As `work`, on rows that come from elsewhere."""
    if (commit := order.ledger.find(shard.index)) is not None:
        return commit
    watch = Watch(beat)
    try:
        with order.ledger.attempt(shard) as attempt:
            tally = Tally()
            with _opened(attempt.writer, order.output) as files:
                for batch in order.function(shard, watch.over(read()), tally):
                    files.add(batch)
                    if not shard.pieces:  # the function reads for itself, unseen by the watch: what it yields is its sign of life
                        beat(0)
            return attempt.commit(files.kept.rows, dict(tally))
    except StorageError:
        raise
    except Exception as error:
        return watch.poison(shard, error, order.function if order.judges_rows else None)


@dataclass(frozen=True)
class _Files:
    """What a shard's rows are written to."""

    kept: RowGroups
    aside: RowGroups | None
    column: str | None

    def add(self, rows: pa.RecordBatch) -> None:
        if self.aside is None or self.column is None:
            self.kept.add(rows)
            return
        is_aside = rows[self.column]
        rows = rows.drop_columns([self.column])
        self.kept.add(rows.filter(pc.invert(is_aside)))
        self.aside.add(rows.filter(is_aside))


@contextmanager
def _opened(writer: Writer, output: Output) -> Iterator[_Files]:
    with ExitStack() as stack:

        def rows_to(name: str) -> RowGroups:
            sink = stack.enter_context(shard_writer(writer, name, output.schema))
            return RowGroups(output.schema, output.group_rows, sink, output.group_bytes)

        files = _Files(rows_to(FILE), rows_to(ASIDE) if output.aside else None, output.aside)
        yield files
        files.kept.flush()
        if files.aside is not None:
            files.aside.flush()


@dataclass
class Watch:
    """Knows which rows of a shard a function has in hand."""

    beat: Beat
    first: int = 0
    batch: pa.RecordBatch | None = field(default=None)

    def over(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.batch = batch
            yield batch
            self.batch = None
            self.first += batch.num_rows
            self.beat(batch.num_rows)

    def poison(self, shard: Shard, error: Exception, row_function: StageFunction | None) -> Poison:
        """What is wrong with the shard; with a function that judges rows one by one, down to the row."""
        traceback.print_exception(error)  # the whole of it to the worker's log, a sentence to whoever reads the failure
        sentence = " ".join(f"{type(error).__name__}: {error}".split())
        if self.batch is None:
            return Poison(shard.name, (self.first, self.first) if self.first else None, (), sentence)
        start, batch = (0, self.batch) if row_function is None else _narrowed(row_function, shard, self.batch, type(error))
        ids = batch["id"].cast(pa.string()).to_pylist() if "id" in batch.schema.names else []
        first = self.first + start
        return Poison(shard.name, (first, first + batch.num_rows), tuple(dict.fromkeys((*ids[:1], *ids[-1:]))), sentence)


def _narrowed(function: StageFunction, shard: Shard, batch: pa.RecordBatch, kind: type[Exception]) -> tuple[int, pa.RecordBatch]:
    """The first rows that alone raise the same kind of error, and their place in the batch: by halves, so in few calls."""
    start = 0
    while batch.num_rows > 1:
        half = batch.num_rows // 2
        if _raises(function, shard, batch.slice(0, half), kind):
            batch = batch.slice(0, half)
        elif _raises(function, shard, batch.slice(half), kind):
            start, batch = start + half, batch.slice(half)
        else:
            break
    return start, batch


def _raises(function: StageFunction, shard: Shard, batch: pa.RecordBatch, kind: type[Exception]) -> bool:
    try:
        for _ in function(shard, iter((batch,)), Tally()):
            pass
    except kind:
        return True
    except Exception:
        return False
    return False
