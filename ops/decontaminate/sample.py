"""A fair sample of a source's documents, the same in every run: ids are hashes, so the smallest ones are a draw."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.artifacts.artifact import Artifact
from ops.shards import read_batches, shard_names


def sampled_train_texts(source: Artifact, documents: int, batch_rows: int) -> Iterator[pa.Array]:
    """Texts of at most `documents` train documents, batch by batch: those of the smallest ids."""
    last = largest_sampled_id(source, documents)
    for name in shard_names(source):
        for batch in read_batches(source, name, ["id", "text", "is_held_out"], batch_rows):
            chosen = pc.invert(batch["is_held_out"])
            if last is not None:
                chosen = pc.and_(chosen, pc.less_equal(batch["id"], last))
            texts = batch["text"].filter(chosen)
            if len(texts):
                yield texts


def largest_sampled_id(source: Artifact, documents: int) -> str | None:
    """The id up to which train documents are in the sample; None where it takes all of them."""
    smallest = pa.array([], pa.string())
    seen = 0
    for name in shard_names(source):
        for batch in read_batches(source, name, ["id", "is_held_out"]):
            ids = batch["id"].filter(pc.invert(batch["is_held_out"]))
            seen += len(ids)
            both = pa.concat_arrays([smallest, ids])
            smallest = both.take(pc.array_sort_indices(both)[:documents])
    return smallest[-1].as_py() if seen > documents else None


def share_of(documents: int, share: float, least: int) -> int:
    """How many documents a share of them is, rounded up, and at least `least`."""
    return max(least, int(np.ceil(share * documents)))
