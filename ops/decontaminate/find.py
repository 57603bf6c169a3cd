"""First pass: what of the index stands in every document. The only one that reads texts."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.artifacts.artifact import Artifact
from ops.dataflow.shard import Shard, Tally
from ops.decontaminate.match import TRAIN, Hits, Standard, largest_shares, matcher_of
from ops.hashing.columns import TextColumn

HIT_PLACES = pa.struct([(name, pa.int32()) for name in ("entry", "word", "start", "end")])
FOUND = pa.schema([("id", pa.string()), ("is_held_out", pa.bool_()), ("hits", pa.list_(HIT_PLACES)), ("text", pa.string())])


@dataclass(frozen=True)
class FindHits:
    """Record batches with `id`, `text` and `is_held_out` -> `FOUND`: the hits of each document in its order.

    `text` is kept of documents that may come out as flagged and null of the others, so that nobody reads texts twice.
    """

    evaluation_ngrams: Artifact
    min_coverage: float

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        matcher = matcher_of(self.evaluation_ngrams)
        unfiltered = Standard.unfiltered(matcher.index)
        # Boilerplate that is dropped from a passage is at most half of it, else the passage is not looked for: so no share can
        # rise to more than twice what it is before.
        least = self.min_coverage / 2
        for batch in batches:
            hits = matcher.hits(TextColumn.of(batch["text"]))
            coverage = matcher.coverage(hits, np.full(batch.num_rows, TRAIN), unfiltered)
            may_be_flagged = pa.array(largest_shares(coverage, batch.num_rows) >= least)
            texts = pc.if_else(may_be_flagged, batch["text"], pa.scalar(None, pa.string()))
            yield pa.record_batch([batch["id"], batch["is_held_out"], _listed(hits, batch.num_rows), texts], schema=FOUND)


def _listed(hits: Hits, rows: int) -> pa.ListArray:
    """The hits of each row."""
    offsets = np.searchsorted(hits.rows, np.arange(rows + 1)).astype(np.int32)
    columns = [pa.array(column.astype(np.int32)) for column in (hits.places, hits.words, hits.starts, hits.ends)]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(columns, fields=list(HIT_PLACES)))


def hits_of(listed: pa.ListArray) -> Hits:
    """The hits of a column of `FOUND`."""
    values = listed.flatten()
    counts = np.diff(listed.offsets.to_numpy())
    places, words, starts, ends = (values.field(name).to_numpy().astype(np.int64) for name in ("entry", "word", "start", "end"))
    return Hits(np.repeat(np.arange(len(listed)), counts), places, words, starts, ends)
