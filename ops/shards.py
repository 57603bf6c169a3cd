"""Co-partitioned shards: Parquet files of the same names, holding the same rows in the same order.

`normalized` fixes the shard names (`part-00000-of-00002.parquet`) and the row order (ascending `id`);
every attribute set (language, quality, tokens, ...) repeats both. So joins are positional, and checked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from ops.row_groups import RowGroups

ROWS_PER_BATCH = 8_192  # ~20 MB of web text; large enough to amortise a kernel call, small enough to bound memory
NO_BOUND = 1 << 62


class MisalignedShardError(ValueError):
    """Two shards that must hold the same rows in the same order do not."""


class BatchSink(Protocol):
    """Takes record batches, one after another."""

    def __call__(self, batch: pa.RecordBatch) -> None: ...


def shard_name(index: int, count: int) -> str:
    return f"part-{index:05d}-of-{count:05d}.parquet"


def shard_names(artifact: Artifact, folder: str = "") -> tuple[str, ...]:
    """The shards of an artifact (or of one folder in it), in order."""
    prefix = f"{folder}/part-" if folder else "part-"
    return tuple(name for name in artifact.names if name.startswith(prefix) and name.endswith(".parquet"))


def read_batches(artifact: Artifact, name: str, columns: list[str] | None = None, rows: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
    """Stream one shard as record batches of at most `rows` rows."""
    with artifact.open(name) as stream, pq.ParquetFile(stream) as shard:
        yield from shard.iter_batches(batch_size=rows, columns=columns)


def read_table(artifact: Artifact, name: str, columns: list[str] | None = None) -> pa.Table:
    """Read one shard whole. A shard is bounded (~256 MiB of text), so this is too."""
    with artifact.open(name) as stream:
        return pq.read_table(stream, columns=columns)


@contextmanager
def shard_writer(out: Writer, name: str, schema: pa.Schema) -> Iterator[BatchSink]:
    """Write one shard. The file exists, with its schema, even if no batch is given.

    The bytes depend on the rows and their batching alone: fixed codec, level and row groups, no timestamps.
    """
    with out.open(name) as stream, pq.ParquetWriter(stream, schema, compression="zstd", compression_level=3) as parquet:

        def write(batch: pa.RecordBatch) -> None:
            if batch.num_rows:
                parquet.write_batch(batch)

        yield write


def write_table(out: Writer, name: str, table: pa.Table, group_bytes: int = NO_BOUND) -> None:
    """Write one table as a shard, in row groups of `ROWS_PER_BATCH`, or fewer where they would hold more than `group_bytes`."""
    with shard_writer(out, name, table.schema) as write:
        rows = RowGroups(table.schema, ROWS_PER_BATCH, write, group_bytes)
        for batch in table.combine_chunks().to_batches(max_chunksize=ROWS_PER_BATCH):
            rows.add(batch)
        rows.flush()


def check_aligned(name: str, reference: pa.ChunkedArray | pa.Array, *others: pa.ChunkedArray | pa.Array) -> None:
    """Raise unless every id column equals the reference, row by row.

    Raises:
        MisalignedShardError: says which shard and the first row that differs.
    """
    expected = _chunked(reference)
    for found in map(_chunked, others):
        if len(found) != len(expected):
            raise MisalignedShardError(f"{name}: {len(found)} rows beside {len(expected)}; rebuild the shorter artifact")
        if not found.equals(expected):
            row = next(i for i, (a, b) in enumerate(zip(expected, found, strict=True)) if a != b)
            raise MisalignedShardError(
                f"{name}: row {row} has id {found[row]} beside {expected[row]}; they were built from different inputs"
            )


def _chunked(ids: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    """A batch has arrays and a table chunks; Arrow compares like with like alone."""
    return ids if isinstance(ids, pa.ChunkedArray) else pa.chunked_array([ids])
