"""Pieces as record batches, bounded by bytes: a batch of tiny documents is long, one of 10-MB documents holds one."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from infra.storage.streams import open_file
from ops.dataflow.shard import Piece, group_bytes

ARROW_SUFFIX = ".arrow"
STREAM_BYTES = 1 << 20  # read ahead of the decoder, for each column; a whole column chunk of long texts may be 256 MiB


def read_pieces(pieces: Iterable[Piece], batch_bytes: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Stream pieces one behind the other.

    Args:
        batch_bytes: decoded size that a batch should not exceed; a single row may.
        batch_rows: rows that a batch never exceeds.
    """
    for piece in pieces:
        if piece.url.endswith(ARROW_SUFFIX):
            yield from _read_arrow(piece, batch_bytes, batch_rows)
        else:
            yield from _read_parquet(piece, batch_bytes, batch_rows)


def _read_parquet(piece: Piece, batch_bytes: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    columns = None if piece.columns is None else list(piece.columns)
    with open_file(piece.url) as stream, pq.ParquetFile(stream, buffer_size=STREAM_BYTES) as file:
        sizes = group_bytes(file.metadata, piece.columns)
        for group in piece.row_groups if piece.row_groups is not None else range(len(sizes)):
            rows = _rows_within(file.metadata.row_group(group).num_rows, sizes[group], batch_bytes, batch_rows)
            for batch in file.iter_batches(rows, [group], columns, use_threads=False):
                yield from slices(batch, batch_bytes)


def _read_arrow(piece: Piece, batch_bytes: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(piece.url) as mapped:
        file = pa.ipc.open_file(mapped)
        for index in range(file.num_record_batches):
            batch = file.get_batch(index)
            batch = batch if piece.columns is None else batch.select(list(piece.columns))
            rows = _rows_within(batch.num_rows, batch.nbytes, batch_bytes, batch_rows)
            for start in range(0, batch.num_rows, rows):
                yield from slices(batch.slice(start, rows), batch_bytes)


def _rows_within(rows: int, nbytes: int, batch_bytes: int, batch_rows: int) -> int:
    """Rows of average size that fit a batch."""
    return max(1, min(batch_rows, rows * batch_bytes // max(1, nbytes)))


def slices(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Halve a batch until each part is small enough or a single row: averages hide the one long document among short ones."""
    if batch.num_rows <= 1 or batch.nbytes <= batch_bytes:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from slices(batch.slice(0, half), batch_bytes)
    yield from slices(batch.slice(half), batch_bytes)
