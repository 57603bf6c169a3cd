"""Row groups that follow from the rows alone, however they were batched: so many rows, or fewer where rows are large.

A Parquet reader holds a row group's column about twice, and a writer once more: so its bytes bound everybody's memory.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

GROUP_BYTES = 64 << 20  # 8,192 documents of 8 kB; reading ten-megabyte documents 25 a group took 0.6 GB (239 MB of text)
LISTED_VALUE_BYTES = 16  # of a list's value that has no fixed width


class RowGroups:
    """Gathers rows and hands them to `sink` in row groups; `flush` hands on the last.

    A group ends with its `group_rows`th row, or with the row that brings its values of varying length to `group_bytes`.
    Memory: one group.
    """

    def __init__(self, schema: pa.Schema, group_rows: int, sink: Callable[[pa.RecordBatch], None], group_bytes: int = GROUP_BYTES) -> None:
        self.rows = 0
        self._schema, self._group_rows, self._sink, self._group_bytes = schema, group_rows, sink, group_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows.

        Raises:
            TypeError: they are not of the schema.
        """
        if not batch.schema.equals(self._schema):
            raise TypeError(f"the stage yields {batch.schema.to_string()} and declares {self._schema.to_string()}; correct one of them")
        self.rows += batch.num_rows
        running = np.cumsum(row_bytes(batch))
        start = 0
        while start < batch.num_rows:
            taken = int(running[start - 1]) if start else 0
            heavy = (
                int(np.searchsorted(running, self._group_bytes - self._waiting_bytes + taken)) + 1
            )  # rows up to and with the one too many
            end = min(heavy, start + self._group_rows - self._waiting_rows, batch.num_rows)
            self._waiting.append(batch.slice(start, end - start))
            self._waiting_rows += end - start
            self._waiting_bytes += int(running[end - 1]) - taken
            if self._waiting_rows >= self._group_rows or self._waiting_bytes >= self._group_bytes:
                self.flush()
            start = end

    def flush(self) -> None:
        """Hand on what waits. To be called once more at the end."""
        if self._waiting:
            self._sink(self._waiting[0] if len(self._waiting) == 1 else pa.concat_batches(self._waiting))
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


def row_bytes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """[rows]: bytes of each row's texts, binaries and lists."""
    sizes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            lengths, width = pc.binary_length(column), 1
        elif pa.types.is_list(column.type):
            value = column.type.value_type
            lengths, width = pc.list_value_length(column), value.bit_width // 8 if pa.types.is_primitive(value) else LISTED_VALUE_BYTES
        else:
            continue
        sizes += pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False).astype(np.int64) * width
    return sizes
