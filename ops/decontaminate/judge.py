"""Second pass: which documents hold enough of a passage, once boilerplate counts no more. Reads no text."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from ops.dataflow.shard import Shard, Tally
from ops.decontaminate.config import ContaminationConfig
from ops.decontaminate.find import hits_of
from ops.decontaminate.gather import KINDS
from ops.decontaminate.lookup import PassageIndex
from ops.decontaminate.match import HELD_OUT, TRAIN, Coverage, Matcher, Standard, largest_shares, matcher_of

HIT = pa.struct(
    [
        ("evaluation", pa.string()),
        ("item", pa.string()),
        ("field", pa.string()),
        ("kind", pa.string()),
        ("coverage", pa.float32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
    ]
)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("is_contaminated", pa.bool_()),
        ("max_coverage", pa.float32()),
        ("evaluations", pa.list_(pa.string())),
        ("hits", pa.list_(HIT)),
    ]
)
# What is tallied: documents; flagged ones, also by evaluation and by kind of passage; those that boilerplate would flag.
CONTAMINATED, CONTAMINATED_HELD_OUT, SPARED, EVALUATION, KIND = "contaminated", "contaminated_held_out", "spared", "evaluation/", "kind/"


@dataclass(frozen=True)
class JudgeHits:
    """Record batches with `id`, `is_held_out` and `hits` (`FOUND`) -> `SCHEMA`.

    dropped: index entries that are boilerplate, packed eight a byte.
    """

    config: ContaminationConfig
    evaluation_ngrams: Artifact
    dropped: bytes

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        matcher = matcher_of(self.evaluation_ngrams)
        filtered, unfiltered = self._standards
        for batch in batches:
            yield self._judge(batch, matcher, filtered, unfiltered, tally)

    @cached_property
    def _standards(self) -> tuple[Standard, Standard]:
        index = matcher_of(self.evaluation_ngrams).index
        dropped = np.unpackbits(np.frombuffer(self.dropped, np.uint8), count=len(index.features)).astype(bool)
        return Standard.of(index, dropped), Standard.unfiltered(index)

    def _judge(self, batch: pa.RecordBatch, matcher: Matcher, filtered: Standard, unfiltered: Standard, tally: Tally) -> pa.RecordBatch:
        rows, least = batch.num_rows, self.config.min_coverage
        hits = hits_of(batch["hits"])
        kinds = np.where(batch["is_held_out"].to_numpy(zero_copy_only=False), HELD_OUT, TRAIN)
        coverage = matcher.coverage(hits, kinds, filtered)
        shares = largest_shares(coverage, rows)
        flagged = shares >= least
        if filtered.dropped.any():
            raw = largest_shares(matcher.coverage(hits, kinds, unfiltered), rows)
            tally[SPARED] += int((~flagged & (raw >= least)).sum())
        tally[CONTAMINATED] += int(flagged.sum())
        tally[CONTAMINATED_HELD_OUT] += int((flagged & (kinds == HELD_OUT)).sum())
        kept = kept_hits(coverage, least, self.config.max_hits)
        names, named = _by_document(rows, kept.rows, matcher.index.evaluation_of[kept.passages], matcher.index.evaluations)
        tally.update(f"{EVALUATION}{name}" for name in named)
        _, of_kind = _by_document(rows, kept.rows, matcher.index.kind_of[kept.passages], KINDS)
        tally.update(f"{KIND}{kind}" for kind in of_kind)
        columns = [batch["id"], pa.array(flagged), pa.array(shares.astype(np.float32)), names, _attributed(matcher.index, kept, rows)]
        return pa.record_batch(columns, schema=SCHEMA)


def kept_hits(coverage: Coverage, min_coverage: float, max_hits: int) -> Coverage:
    """The passages that reach the threshold, row by row: at most `max_hits`, those that the row has most of first."""
    reached = np.flatnonzero(coverage.shares >= min_coverage)
    order = reached[np.lexsort((coverage.passages[reached], -coverage.shares[reached], coverage.rows[reached]))]
    rows = coverage.rows[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    return coverage.take(order[rank < max_hits])


def _by_document(rows: int, of: NDArray[np.int64], values: NDArray[np.int64], names: tuple[str, ...]) -> tuple[pa.ListArray, list[str]]:
    """Different names of each row, in their order, as a column and one behind the other.

    Args:
        of, values: [hits] row, and place in `names`.
    """
    ascending = np.argsort(np.array(names, object)) if names else np.zeros(0, np.int64)
    rank = np.empty(len(names), np.int64)
    rank[ascending] = np.arange(len(names))
    pairs = np.unique(of * max(1, len(names)) + rank[values])
    found = [names[ascending[pair]] for pair in pairs % max(1, len(names))]
    offsets = np.searchsorted(pairs // max(1, len(names)), np.arange(rows + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(found, pa.string())), found


def _attributed(index: PassageIndex, kept: Coverage, rows: int) -> pa.ListArray:
    """Values of `HIT` for each row."""
    named = index.passages.take(pa.array(kept.passages)).combine_chunks()
    evaluations = pa.array(index.evaluations, pa.string()).take(named["evaluation"].combine_chunks())
    columns = [
        evaluations,
        *(named[name].combine_chunks() for name in ("item", "field", "kind")),
        pa.array(kept.shares.astype(np.float32)),
        pa.array(kept.starts),
        pa.array(kept.ends),
    ]
    offsets = np.searchsorted(kept.rows, np.arange(rows + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(columns, fields=list(HIT)))
