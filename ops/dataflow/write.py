"""One output file whose bytes follow from its rows alone, however they were batched."""

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from infra.artifacts.writer import Writer
from ops.shards import BatchSink, shard_writer


class GroupedRows:
    """Gathers rows into row groups of exactly `group_rows`; `flush` passes on the last, shorter one.

    Memory: one row group.
    """

    def __init__(self, schema: pa.Schema, group_rows: int, sink: BatchSink) -> None:
        self.rows = 0
        self._schema, self._group_rows, self._sink = schema, group_rows, sink
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows.

        Raises:
            TypeError: they are not of the schema.
        """
        if not batch.schema.equals(self._schema):
            raise TypeError(f"the stage yields {batch.schema.to_string()} and declares {self._schema.to_string()}; correct one of them")
        self.rows += batch.num_rows
        while self._waiting_rows + batch.num_rows >= self._group_rows:
            missing = self._group_rows - self._waiting_rows
            self._keep(batch.slice(0, missing))
            batch = batch.slice(missing)
            self.flush()
        if batch.num_rows:
            self._keep(batch)

    def flush(self) -> None:
        if self._waiting:
            self._sink(pa.concat_batches(self._waiting))
        self._waiting, self._waiting_rows = [], 0

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows


@contextlib.contextmanager
def grouped_writer(out: Writer, name: str, schema: pa.Schema, group_rows: int) -> Iterator[GroupedRows]:
    """Write one Parquet file; it exists, with its schema, even if no row comes."""
    with shard_writer(out, name, schema) as sink:
        rows = GroupedRows(schema, group_rows, sink)
        yield rows
        rows.flush()
