"""Columns too large to be sorted: their rows wait on local disk, and come back where the sort says.

A sort moves every row several times and thousands at once, which texts of ten megabytes don't survive. So it sorts where a row
lies in place of these columns, and the rows are read again, as many at a time as memory allows.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ops.row_groups import row_bytes

AT, BYTES = "_at", "_bytes"
PLACES = pa.schema([(AT, pa.int64()), (BYTES, pa.int64())])


class Carried:
    """Takes rows in record batches of bounded size, and gives them back by place. Use as a context."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._path, self._schema = folder / "carried.arrow", schema
        self._sink = pa.OSFile(str(self._path), "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)
        self._starts = [0]  # place of every batch's first row, and of the next one's
        self._batches: list[pa.RecordBatch] = []  # maps of the file, once it is whole

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._batches = []
        self._close()
        self._path.unlink()

    def add(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Take rows. Returns the two columns that stand for them: where each lies, and its bytes."""
        self._writer.write_batch(rows)
        first = self._starts[-1]
        self._starts.append(first + rows.num_rows)
        return [pa.array(np.arange(first, self._starts[-1])), pa.array(row_bytes(rows))]

    def joined(self, rows: pa.RecordBatch, schema: pa.Schema, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Put the columns back: batches of `schema` of about `batch_bytes` at most, or of one row."""
        places, sizes = rows[AT].to_numpy(), rows[BYTES].to_numpy()
        for start, end in _cuts(sizes, batch_bytes):
            columns = {**_columns(rows.slice(start, end - start)), **_columns(self._at(places[start:end]))}
            yield pa.record_batch([columns[field.name].cast(field.type) for field in schema], schema=schema)

    def _at(self, places: NDArray[np.int64]) -> pa.RecordBatch:
        """The rows at these places, in this order."""
        batches = self._batches or self._reopened()
        within = np.searchsorted(self._starts, places, side="right") - 1
        together = pa.concat_batches(
            [batches[index].take(pa.array(places[within == index] - self._starts[index])) for index in np.unique(within).tolist()]
        )
        back = np.empty(len(places), np.int64)
        back[np.argsort(within, kind="stable")] = np.arange(len(places))
        return together.take(pa.array(back))

    def _reopened(self) -> list[pa.RecordBatch]:
        self._close()
        file = pa.ipc.open_file(pa.memory_map(str(self._path)))
        self._batches = [file.get_batch(index) for index in range(file.num_record_batches)]
        return self._batches

    def _close(self) -> None:
        if not self._sink.closed:
            self._writer.close()
            self._sink.close()


def _columns(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def _cuts(sizes: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Stretches whose sizes add up to `most` at most; a single row may be larger."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield start, end
        start = end
