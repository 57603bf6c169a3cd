"""Which documents have the id of an earlier one: ids as numbers, in the order in which their documents would survive."""

import binascii
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ops.dataflow.keyed import Keyed
from ops.dataflow.shard import Shard, Tally

ID_HEX = 32
TRAIN = 1 << 62  # added to a train document's rank: any held-out copy comes before it
OCCURRENCES = Keyed(pa.schema([("high", pa.uint64()), ("low", pa.uint64()), ("rank", pa.int64())]), "high", ("low", "rank"))
REPEATS = pa.schema([("number", pa.int64()), ("survivor", pa.int64())])
SORTED_ROWS = 1 << 18  # gathered at a time: 6 MB


@dataclass(frozen=True)
class SendOccurrences:
    """Sends the halves of each id, and the document's rank: its number, after all held-out ones if it is a train document."""

    starts: tuple[int, ...]

    def __call__(self, source: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        number = self.starts[source.index]
        for batch in batches:
            halves = id_halves(batch["id"])
            held_out = batch["is_held_out"].to_numpy(zero_copy_only=False)
            ranks = np.arange(number, number + batch.num_rows) + np.where(held_out, 0, TRAIN)
            columns = [pa.array(halves[:, 0]), pa.array(halves[:, 1]), pa.array(ranks)]
            yield pa.RecordBatch.from_arrays(columns, schema=OCCURRENCES.schema)
            number += batch.num_rows


def id_halves(ids: pa.StringArray) -> NDArray[np.uint64]:
    """[ids, 2]: ids of 32 hex digits as two numbers each, that order as the ids do.

    Raises:
        ValueError: an id is no such thing.
    """
    _, offsets_buffer, data = ids.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(ids) + 1, ids.offset * 4) if len(ids) else np.zeros(1, np.int32)
    if ids.null_count or (np.diff(offsets) != ID_HEX).any():
        raise ValueError(f"ids are {ID_HEX} hex digits each; normalize the source again")
    digits = memoryview(data)[offsets[0] : offsets[-1]] if len(ids) else b""
    return np.frombuffer(binascii.unhexlify(digits), ">u8").astype(np.uint64).reshape(-1, 2)


def find_repeats(bucket: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
    """Occurrences sorted by id and rank -> of each but the first of an id, its document and the one that survives."""
    before: tuple[int, int] | None = None  # the id of the last row, and whoever survives of it
    survivor = 0
    for batch in batches:
        high, low, ranks = (batch[name].to_numpy() for name in OCCURRENCES.schema.names)
        begins = np.ones(len(ranks), bool)
        begins[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        begins[0] = before != (high[0], low[0])
        firsts = np.concatenate([[survivor], ranks[begins]])
        survivors = firsts[np.cumsum(begins)]
        yield pa.RecordBatch.from_arrays([pa.array(_number(ranks[~begins])), pa.array(_number(survivors[~begins]))], schema=REPEATS)
        before, survivor = (high[-1], low[-1]), int(survivors[-1])


def _number(ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    return ranks & (TRAIN - 1)


def repeats_among(occurrences: list[pa.RecordBatch]) -> pa.Table:
    """What `find_repeats` gives of all documents, ascending by document, in one chunk. Empties the list: 100 bytes a document are held."""
    columns = [pa.Table.from_batches(occurrences, OCCURRENCES.schema)[name].to_numpy() for name in OCCURRENCES.schema.names]
    occurrences.clear()
    ordered = _gathered(columns, _order(*columns))
    return pa.Table.from_batches(find_repeats(Shard("all", 0), ordered, Tally()), REPEATS).sort_by("number").combine_chunks()


def _order(high: NDArray[np.uint64], low: NDArray[np.uint64], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows by id and rank. Hashes differ in their upper halves, so the others are looked at where these are equal: for repeats."""
    order = np.argsort(high)
    equal = high[order[1:]] == high[order[:-1]]
    tied = np.concatenate([equal, [False]]) | np.concatenate([[False], equal])
    some = order[tied]
    order[tied] = some[np.lexsort((ranks[some], low[some], high[some]))]
    return order


def _gathered(columns: list[NDArray[np.generic]], order: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(order), SORTED_ROWS):
        some = order[start : start + SORTED_ROWS]
        yield pa.RecordBatch.from_arrays([pa.array(column[some]) for column in columns], schema=OCCURRENCES.schema)
