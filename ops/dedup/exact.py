"""Exact duplicates across sources: documents of equal id, which is the hash of their text.

Two shuffles. The first brings equal ids together and finds who survives; the second brings what was found back to the shard
that each document is in. Where all ids fit one bucket there is nothing to exchange: they are sorted in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.dataflow.errors import PoisonedShardsError
from ops.dataflow.flow import Dataflow, Done
from ops.dataflow.keyed import Keyed
from ops.dataflow.shard import Piece, Shard, Tally, split
from ops.dataflow.work import Output, Watch
from ops.dedup.config import ExactDedupConfig
from ops.dedup.numbering import Numbering
from ops.dedup.occurrences import OCCURRENCES, REPEATS, SendOccurrences, find_repeats, repeats_among
from ops.dedup.returning import ReturnRepeats, returned
from ops.shards import MisalignedShardError, read_batches, shard_name
from ops.units import MiB

SCHEMA = pa.schema([("id", pa.string()), ("is_duplicate", pa.bool_()), ("survivor_source", pa.string()), ("survivor_id", pa.string())])
RETURNED = Keyed(returned(REPEATS), "shard", ("number",))
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
    count = max(config.execution.workers, 1 + numbering.documents // ROWS_PER_BUCKET) if numbering.shards else 0
    flagged = _at_once(flow, normalized, numbering) if count == 1 else _by_shuffles(flow, normalized, numbering, count)
    flow.publish(flagged)
    return stats_of(numbering, flagged.tally)


def _at_once(flow: Dataflow, normalized: Artifacts, numbering: Numbering) -> Done:
    """Flag documents that are few enough for one bucket."""
    occurrences: list[pa.RecordBatch] = []
    poisons = []
    for name, shard in zip(_files(numbering), numbering.shards, strict=True):
        whole, watch = Shard(name, 0), Watch(flow.beat)
        rows = watch.over(read_batches(normalized[shard.source], shard.name, ["id", "is_held_out"]))
        try:
            occurrences.extend(SendOccurrences((shard.start,))(whole, rows, Tally()))
        except OSError:
            raise  # the disk's fault
        except Exception as error:
            poisons.append(watch.poison(whole, error, None))
    if poisons:
        raise PoisonedShardsError("repeats", poisons, len(numbering.shards))
    flag = FlagFound(FlagShard(normalized, numbering), repeats_among(occurrences))
    shards = [Shard(name, index) for index, name in enumerate(_files(numbering))]
    return flow.map("flags", shards, flag, Output(SCHEMA), judges_rows=False)


def _by_shuffles(flow: Dataflow, normalized: Artifacts, numbering: Numbering, count: int) -> Done:
    """Flag the documents by way of so many buckets."""
    sources, starts = _occurrences(normalized, numbering)
    buckets = [shard_name(index, count) for index in range(count)]
    repeats = flow.by_key("repeats", sources, SendOccurrences(starts), OCCURRENCES, buckets, find_repeats, Output(REPEATS))
    found = [Shard(name, index, (piece,)) for index, (name, piece) in enumerate(zip(buckets, repeats.pieces(), strict=True))]
    back = ReturnRepeats(tuple(shard.start for shard in numbering.shards), RETURNED.schema)
    return flow.by_key("flags", found, back, RETURNED, _files(numbering), FlagShard(normalized, numbering), Output(SCHEMA))


def _files(numbering: Numbering) -> list[str]:
    return [f"{shard.source}/{shard.name}" for shard in numbering.shards]


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


@dataclass(frozen=True)
class FlagFound:
    """As `flag`, out of the repeats of all shards, ascending."""

    flag: FlagShard
    repeats: pa.Table

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        place = self.flag.numbering.shards[shard.index]
        first, last = np.searchsorted(self.repeats["number"].to_numpy(), [place.start, place.start + place.rows])
        return self.flag(shard, iter(self.repeats.slice(first, last - first).to_batches()), tally)


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
