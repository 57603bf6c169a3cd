"""Rows that arrive one by one, on their way into record batches."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ops.shards import ROWS_PER_BATCH

MAX_BATCH_BYTES = 16 << 20  # keeps a batch small where single rows are large


class RowBuffer:
    """Collects rows and hands them on as record batches. Where a batch ends depends on the rows alone."""

    def __init__(self, schema: pa.Schema, sink: Callable[[pa.RecordBatch], None]) -> None:
        self._schema, self._sink = schema, sink
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    def add(self, row: tuple[Any, ...], size: int = 0) -> None:
        """Take one row; `size` is its weight in bytes."""
        self._rows.append(row)
        self._bytes += size
        if len(self._rows) >= ROWS_PER_BATCH or self._bytes >= MAX_BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand on what is there. To be called once more at the end."""
        if self._rows:
            columns = zip(*self._rows, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
            self._sink(pa.record_batch(arrays, schema=self._schema))
        self._rows, self._bytes = [], 0
