"""Exact duplicates across sources: documents of equal id, which is the hash of their text.

Two shuffles. The first brings equal ids together and finds who survives; the second brings what was found back to the shard
that each document is in.
"""

import binascii
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.dataflow.flow import Dataflow
from ops.dataflow.keyed import Keyed
from ops.dataflow.shard import Piece, Shard, Tally, split
from ops.dataflow.work import Output
from ops.dedup.config import ExactDedupConfig
from ops.dedup.numbering import Numbering
from ops.shards import MisalignedShardError, read_batches, shard_name
from ops.units import MiB

SCHEMA = pa.schema([("id", pa.string()), ("is_duplicate", pa.bool_()), ("survivor_source", pa.string()), ("survivor_id", pa.string())])
ID_HEX = 32
TRAIN = 1 << 62  # added to a train document's rank: any held-out copy comes before it
OCCURRENCES = Keyed(pa.schema([("high", pa.uint64()), ("low", pa.uint64()), ("rank", pa.int64())]), "high", ("low", "rank"))
REPEATS = pa.schema([("number", pa.int64()), ("survivor", pa.int64())])
RETURNED = Keyed(pa.schema([("shard", pa.int64()), *REPEATS]), "shard", ("number",))
SPLIT_BYTES = 64 * MiB  # of ids: 2 million documents
ROWS_PER_BUCKET = 4_000_000  # 96 MB of occurrences: a heartbeat a second or two, and work for many workers


class ExactDedupSourceStats(Stats):
    """One source's documents, and how many of them survive elsewhere."""

    documents: int
    duplicates: int


class ExactDedupStats(Stats):
    """Documents seen and flagged, in all and by source."""

    documents: int
    duplicates: int
    sources: dict[str, ExactDedupSourceStats]


@program(version="1")
def exact_duplicates(config: ExactDedupConfig, normalized: Artifacts, out: Writer) -> ExactDedupStats:
    """Flag every document whose text survives elsewhere.

    Args:
        normalized: every source; ids are unique within one.
        out: `{source}/` co-partitioned with each source; `id`, `is_duplicate: bool`, and of the copy that
            survives `survivor_source`, `survivor_id` (null where the document itself does).

    A held-out copy survives before any train copy, so no held-out text is trained on. Else the first by
    (source name, shard, row) survives, whatever order anything arrived in.
    """
    numbering = Numbering.of(normalized)
    flow = Dataflow(out, config.execution, unit="rows")
    sources, starts = _occurrences(normalized, numbering)
    count = max(config.execution.workers, 1 + numbering.documents // ROWS_PER_BUCKET) if sources else 0
    buckets = [shard_name(index, count) for index in range(count)]
    repeats = flow.by_key("repeats", sources, SendOccurrences(starts), OCCURRENCES, buckets, find_repeats, Output(REPEATS))
    found = [Shard(name, index, (piece,)) for index, (name, piece) in enumerate(zip(buckets, repeats.pieces(), strict=True))]
    back = ReturnRepeats(tuple(shard.start for shard in numbering.shards))
    files = [f"{shard.source}/{shard.name}" for shard in numbering.shards]
    flags = flow.by_key("flags", found, back, RETURNED, files, FlagShard(normalized, numbering), Output(SCHEMA))
    flow.publish(flags)
    return stats_of(numbering, flags.tally)


def _occurrences(normalized: Artifacts, numbering: Numbering) -> tuple[list[Shard], tuple[int, ...]]:
    """What the first shuffle reads, a few row groups each, and the number of each one's first document."""
    sources: list[Shard] = []
    starts = []
    for shard in numbering.shards:
        whole = Piece(normalized[shard.source].url_of(shard.name), ("id", "is_held_out"))
        for piece in split(whole, SPLIT_BYTES):
            sources.append(Shard(f"{shard.source}/{shard.name}", len(sources), (piece,)))
            starts.append(shard.start + piece.first_row)
    return sources, tuple(starts)


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


@dataclass(frozen=True)
class ReturnRepeats:
    """Sends repeats to the shard that their document is in."""

    starts: tuple[int, ...]

    def __call__(self, source: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        starts = np.array(self.starts)
        for batch in batches:
            shards = np.searchsorted(starts, batch["number"].to_numpy(), side="right") - 1
            yield pa.RecordBatch.from_arrays([pa.array(shards), *batch.columns], schema=RETURNED.schema)


@dataclass(frozen=True)
class FlagShard:
    """The repeats of a shard, ascending -> one row for each of its documents."""

    normalized: Artifacts
    numbering: Numbering

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        place = self.numbering.shards[shard.index]
        repeats = _Repeats(batches)
        start = place.start
        for batch in read_batches(self.normalized[place.source], place.name, ["id"]):
            numbers, survivors = repeats.until(start + batch.num_rows)
            tally[place.source] += len(numbers)
            yield _flags(batch["id"], numbers - start, self.numbering.sources_of(survivors))
            start += batch.num_rows
        if start != place.start + place.rows:
            raise MisalignedShardError(f"{shard.name}: {start - place.start} rows, its footer says {place.rows}; build it again")


class _Repeats:
    """Ascending repeats, taken piece by piece."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._waiting = REPEATS.empty_table()

    def until(self, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The next ones, of documents before `end`: their numbers, and those of the survivors."""
        parts = [self._waiting]
        while not parts[-1].num_rows or parts[-1]["number"][-1].as_py() < end:
            batch = next(self._batches, None)
            if batch is None:
                break
            parts.append(pa.Table.from_batches([batch.select(REPEATS.names)]))
        waiting = pa.concat_tables(parts).combine_chunks()
        numbers, survivors = (waiting[name].to_numpy() for name in REPEATS.names)
        count = int(np.searchsorted(numbers, end))
        self._waiting = waiting.slice(count)
        return numbers[:count], survivors[:count]


def _flags(ids: pa.Array, rows: NDArray[np.int64], sources: pa.Array) -> pa.RecordBatch:
    """All of `ids`, flagged at `rows`, whose survivors lie in `sources`."""
    is_duplicate = np.zeros(len(ids), bool)
    is_duplicate[rows] = True
    place = np.full(len(ids), -1)
    place[rows] = np.arange(len(rows))
    survivor_sources = sources.take(pa.array(place, mask=~is_duplicate))
    survivor_ids = ids.take(pa.array(np.arange(len(ids)), mask=~is_duplicate))  # equal text, so equal id
    return pa.RecordBatch.from_arrays([ids, pa.array(is_duplicate), survivor_sources, survivor_ids], schema=SCHEMA)


def stats_of(numbering: Numbering, duplicates: Tally) -> ExactDedupStats:
    documents = dict.fromkeys(numbering.sources, 0)
    for shard in numbering.shards:
        documents[shard.source] += shard.rows
    sources = {source: ExactDedupSourceStats(documents=documents[source], duplicates=duplicates[source]) for source in numbering.sources}
    return ExactDedupStats(documents=numbering.documents, duplicates=duplicates.total(), sources=sources)
