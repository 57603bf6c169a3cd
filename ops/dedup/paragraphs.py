"""Paragraphs that occur again, across all sources, as spans of the documents they are in. No text is rewritten.

Two shuffles, as in `exact`: the first brings equal paragraphs together, the second brings what was found back to the
documents.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifacts
from infra.artifacts.program import program
from infra.artifacts.writer import Writer
from ops.dataflow.flow import Dataflow
from ops.dataflow.keyed import Keyed
from ops.dataflow.shard import Piece, Shard, Tally, split
from ops.dataflow.work import Output
from ops.dedup.config import ParagraphDedupConfig
from ops.dedup.numbering import Numbering
from ops.dedup.occurrences import id_halves
from ops.dedup.paragraphs_report import ParagraphDedupStats, stats_of
from ops.dedup.returning import ReturnRepeats, returned
from ops.dedup.spans import SPANS, excerpts, list_of_spans
from ops.hashing.blocks import column_blocks
from ops.hashing.columns import TextColumn
from ops.shards import MisalignedShardError, read_batches, shard_name
from ops.units import MiB

SCHEMA = pa.schema([("id", pa.string()), ("removed_bytes", pa.int64()), ("spans", SPANS)])
TRAIN = 1 << 62  # added to a train paragraph's rank: any held-out copy comes before it
PARAGRAPH_BITS = 20  # of a rank, below the document's number; further paragraphs of a document are never looked at, and counted
_WHO = [("survivor", pa.int64()), ("survivor_high", pa.uint64()), ("survivor_low", pa.uint64())]
OCCURRENCES = Keyed(
    pa.schema(
        [
            *((name, pa.uint64()) for name in ("high", "low")),
            *((name, pa.int64()) for name in ("rank", "start", "end")),
            *((name, pa.uint64()) for name in ("id_high", "id_low")),
        ]
    ),
    "high",
    ("low", "rank"),
)
REPEATS = pa.schema([*((name, pa.int64()) for name in ("number", "start", "end")), *_WHO])
RETURNED = Keyed(returned(REPEATS), "shard", ("number", "start"))
SPLIT_BYTES = 64 * MiB  # of text
BYTES_PER_BUCKET = 4_096 * MiB  # of text: about 10 million paragraphs, 500 MB of occurrences


class ParagraphAlarmError(RuntimeError):
    """A source lost more than its alarm share, and the config is strict."""


@program(version="1")
def paragraph_duplicates(config: ParagraphDedupConfig, normalized: Artifacts, out: Writer) -> ParagraphDedupStats:
    """Mark every paragraph of a train document that occurred before.

    Args:
        normalized: every source.
        out: `{source}/` co-partitioned with each source; `id`, `removed_bytes: int64` and `spans` of the text's UTF-8,
            ascending and disjoint: `start`, `end`, and of the document that keeps the paragraph `survivor_source` and
            `survivor_id`. `samples.json`: marked paragraphs of each source. `ops.dedup.spans` cuts them out.

    A paragraph of a held-out document survives before any of a train document, and held-out documents are left whole.
    Else the first by (source name, shard, row, place) survives, whatever order anything arrived in.

    Raises:
        ParagraphAlarmError: see `ParagraphDedupConfig.strict`.
    """
    numbering = Numbering.of(normalized)
    flow = Dataflow(out, config.execution, unit="rows")
    sources, starts, text_bytes = _occurrences(normalized, numbering)
    count = max(config.execution.workers, 1 + text_bytes // BYTES_PER_BUCKET) if sources else 0
    buckets = [shard_name(index, count) for index in range(count)]
    send = SendParagraphs(config.unit == "line", config.min_chars, starts)
    repeats = flow.by_key("paragraphs", sources, send, OCCURRENCES, buckets, find_repeats, Output(REPEATS))
    found = [Shard(name, index, (piece,)) for index, (name, piece) in enumerate(zip(buckets, repeats.pieces(), strict=True))]
    back = ReturnRepeats(tuple(shard.start for shard in numbering.shards), RETURNED.schema)
    files = [f"{shard.source}/{shard.name}" for shard in numbering.shards]
    marking = MarkShard(normalized, numbering, config.unit == "line", config.min_chars)
    marks = flow.by_key("marks", found, back, RETURNED, files, marking, Output(SCHEMA))
    flow.publish(marks)
    stats = stats_of(numbering, marks.tally, config.alarm_share)
    pieces = dict(zip(files, marks.pieces(), strict=True))
    out.write_json(
        "samples.json", [sample for source in numbering.sources for sample in excerpts(source, normalized[source], pieces, config.samples)]
    )
    if config.strict and stats.alarms:
        raise ParagraphAlarmError(
            f"{'; '.join(stats.alarms)}. Read the samples of a run that is not strict, then raise min_chars or alarm_share"
        )
    return stats


def _occurrences(normalized: Artifacts, numbering: Numbering) -> tuple[list[Shard], tuple[int, ...], int]:
    """What the first shuffle reads, the number of each one's first document, and the bytes of all files."""
    sources: list[Shard] = []
    starts = []
    for shard in numbering.shards:
        whole = Piece(normalized[shard.source].url_of(shard.name), ("id", "text", "is_held_out"))
        for piece in split(whole, SPLIT_BYTES):
            sources.append(Shard(f"{shard.source}/{shard.name}", len(sources), (piece,)))
            starts.append(shard.start + piece.first_row)
    sizes = [entry.size for source in sorted(normalized) for entry in normalized[source].manifest.files]
    return sources, tuple(starts), 3 * sum(sizes)  # text shrinks to a third in a shard


@dataclass(frozen=True)
class SendParagraphs:
    """Sends the hashes of each paragraph, its rank and its place, and the document's id."""

    by_line: bool
    min_chars: int
    starts: tuple[int, ...]

    def __call__(self, source: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        number = self.starts[source.index]
        for batch in batches:
            texts = TextColumn.of(batch["text"])
            rows, starts, ends, high, low, _ = column_blocks(texts.data, texts.offsets, self.by_line, self.min_chars)
            places = _places(rows)
            kept = places < 1 << PARAGRAPH_BITS
            held_out = batch["is_held_out"].to_numpy(zero_copy_only=False)[rows]
            ranks = ((number + rows) << PARAGRAPH_BITS | places) + np.where(held_out, 0, TRAIN)
            ids = id_halves(batch["id"])[rows]
            columns = [high, low, ranks, starts, ends, ids[:, 0], ids[:, 1]]
            yield pa.RecordBatch.from_arrays([pa.array(column[kept]) for column in columns], schema=OCCURRENCES.schema)
            number += batch.num_rows


def _places(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each paragraph its number in its row; rows ascend."""
    firsts = np.searchsorted(rows, rows)
    return np.arange(len(rows)) - firsts


def find_repeats(bucket: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
    """Occurrences sorted by hash and rank -> of each train one but the first of a hash, its place, and who survives."""
    before: tuple[int, int] | None = None
    survivor = np.zeros(3, np.uint64)  # rank and id halves of whoever has the paragraph that the last row has
    for batch in batches:
        high, low, ranks, starts, ends, id_high, id_low = (batch[name].to_numpy() for name in OCCURRENCES.schema.names)
        begins = np.ones(len(ranks), bool)
        begins[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        begins[0] = before != (high[0], low[0])
        who = np.stack([ranks.astype(np.uint64), id_high, id_low], axis=1)
        survivors = np.concatenate([survivor[None], who[begins]])[np.cumsum(begins)]
        repeated = ~begins & (ranks >= TRAIN)
        columns = [_number(ranks), starts, ends, _number(survivors[:, 0].astype(np.int64)), survivors[:, 1], survivors[:, 2]]
        yield pa.RecordBatch.from_arrays([pa.array(column[repeated]) for column in columns], schema=REPEATS)
        before, survivor = (high[-1], low[-1]), survivors[-1]


def _number(ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    return (ranks & (TRAIN - 1)) >> PARAGRAPH_BITS


@dataclass(frozen=True)
class MarkShard:
    """The repeats of a shard, by document and place -> one row for each of its documents."""

    normalized: Artifacts
    numbering: Numbering
    by_line: bool
    min_chars: int

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        place = self.numbering.shards[shard.index]
        repeats = pa.Table.from_batches([batch.select(REPEATS.names) for batch in batches], REPEATS).combine_chunks()
        numbers = repeats["number"].to_numpy()
        number = place.start
        for batch in read_batches(self.normalized[place.source], place.name, ["id", "text"]):
            first, last = np.searchsorted(numbers, [number, number + batch.num_rows])
            rows = list_of_spans(repeats.slice(first, last - first), number, batch.num_rows, self.numbering)
            sizes = pc.binary_length(batch["text"]).to_numpy(zero_copy_only=False).astype(np.int64)
            removed = np.zeros(batch.num_rows, np.int64)
            np.add.at(removed, numbers[first:last] - number, _sizes(repeats, first, last))
            self._count(tally, place.source, batch, sizes, removed, int(last - first))
            yield pa.RecordBatch.from_arrays([batch["id"], pa.array(removed), rows], schema=SCHEMA)
            number += batch.num_rows
        if number != place.start + place.rows:
            raise MisalignedShardError(f"{shard.name}: {number - place.start} rows, its footer says {place.rows}; build it again")

    def _count(
        self, tally: Tally, source: str, batch: pa.RecordBatch, sizes: NDArray[np.int64], removed: NDArray[np.int64], repeats: int
    ) -> None:
        texts = TextColumn.of(batch["text"])
        places = _places(column_blocks(texts.data, texts.offsets, self.by_line, self.min_chars)[0])
        for name, value in {
            "documents_with_repeats": int((removed > 0).sum()),
            "documents_emptied": int(((removed == sizes) & (sizes > 0)).sum()),
            "paragraphs": len(places),
            "paragraphs_removed": repeats,
            "bytes": int(sizes.sum()),
            "bytes_removed": int(removed.sum()),
        }.items():
            tally[f"{name}/{source}"] += value
        tally["not_looked_at"] += int((places >= 1 << PARAGRAPH_BITS).sum())


def _sizes(repeats: pa.Table, first: int, last: int) -> NDArray[np.int64]:
    spans: NDArray[np.int64] = repeats["end"].to_numpy()[first:last] - repeats["start"].to_numpy()[first:last]
    return spans
