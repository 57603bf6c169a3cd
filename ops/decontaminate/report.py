"""Flagged places for people to read: is it a leak, or does everybody write so?"""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ops.dataflow.budget import Budget
from ops.dataflow.flow import Done
from ops.dataflow.read import read_pieces
from ops.decontaminate.config import ContaminationConfig
from ops.decontaminate.judge import CONTAMINATED
from ops.shards import ROWS_PER_BATCH

EXCERPT_BYTES, MARGIN_BYTES = 600, 120


@dataclass
class Chosen:
    """The documents with the smallest ids of each evaluation: ids are hashes, so they are a fair draw, in any batching."""

    per_evaluation: int
    _kept: dict[str, list[tuple[str, int, dict[str, Any]]]] = field(default_factory=dict)

    def offer(self, document: str, shard: int, hit: dict[str, Any]) -> None:
        """Consider a document and the passage that it has most of."""
        kept = self._kept.setdefault(hit["evaluation"], [])
        if len(kept) >= self.per_evaluation and (not kept or document >= kept[-1][0]):
            return
        bisect.insort(kept, (document, shard, hit), key=lambda entry: entry[0])
        del kept[self.per_evaluation :]

    def listing(self) -> list[tuple[str, int, dict[str, Any]]]:
        """Document, shard, hit: by evaluation, then by document."""
        return [entry for _, kept in sorted(self._kept.items()) for entry in kept]


def sample_flagged(judged: Done, found: Done, config: ContaminationConfig) -> list[dict[str, Any]]:
    """Samples of flagged documents with what stands around the passage.

    Args:
        judged, found: what `JudgeHits` and `FindHits` wrote.
    """
    batch_bytes = Budget.of(config.execution.memory_bytes).batch_bytes
    chosen = Chosen(config.samples)
    for commit, piece in zip(judged.commits, judged.pieces(("id", "is_contaminated", "hits")), strict=True):
        if not commit.tally.get(CONTAMINATED):
            continue
        for batch in read_pieces([piece], batch_bytes, ROWS_PER_BATCH):
            for row in batch.filter(batch["is_contaminated"]).to_pylist():
                chosen.offer(row["id"], commit.index, row["hits"][0])
    listing = chosen.listing()
    pieces = {commit.index: piece for commit, piece in zip(found.commits, found.pieces(("id", "text")), strict=True)}
    texts: dict[str, str] = {}
    for shard in sorted({shard for _, shard, _ in listing}):
        wanted = pa.array([document for document, place, _ in listing if place == shard], pa.string())
        texts |= _texts_of(read_pieces([pieces[shard]], batch_bytes, ROWS_PER_BATCH), wanted)
    return [_sample(document, texts[document].encode(), hit) for document, _, hit in listing]


def _texts_of(batches: Iterator[pa.RecordBatch], wanted: pa.StringArray) -> dict[str, str]:
    found: dict[str, str] = {}
    for batch in batches:
        chosen = batch.filter(pc.is_in(batch["id"], wanted))
        found.update(zip(chosen["id"].to_pylist(), chosen["text"].to_pylist(), strict=True))
    return found


def _sample(document: str, text: bytes, hit: dict[str, Any]) -> dict[str, Any]:
    start, end = hit["start"], hit["end"]
    matched = text[start : min(end, start + EXCERPT_BYTES)]
    return {
        "id": document,
        **{name: hit[name] for name in ("evaluation", "item", "field", "kind", "start", "end")},
        "coverage": round(hit["coverage"], 6),
        "before": text[max(0, start - MARGIN_BYTES) : start].decode(errors="replace"),
        "matched": matched.decode(errors="replace"),
        "after": text[end : end + MARGIN_BYTES].decode(errors="replace"),
    }
