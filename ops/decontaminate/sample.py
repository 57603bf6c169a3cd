"""A fair sample of a source's documents, the same in every run: ids are hashes, so the smallest ones are a draw."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.artifacts.artifact import Artifact
from ops.shards import read_batches, shard_names

COLUMNS = ["id", "is_held_out"]


def sampled_train_texts(source: Artifact, documents: int, batch_rows: int) -> Iterator[pa.Array]:
    """Texts of at most `documents` train documents, batch by batch: those of the smallest ids."""
    names = shard_names(source)
    last = largest_sampled_id((read_batches(source, name, COLUMNS) for name in names), documents)
    for name in names:
        for batch in read_batches(source, name, [*COLUMNS, "text"], batch_rows):
            texts = batch["text"].filter(is_sampled(batch, last))
            if len(texts):
                yield texts


def is_sampled(batch: pa.RecordBatch, last: str | None) -> pa.BooleanArray:
    """[rows]: train documents up to the id `last`; all of them where it is None."""
    is_train = pc.invert(batch["is_held_out"])
    return is_train if last is None else pc.and_(is_train, pc.less_equal(batch["id"], last))


def largest_sampled_id(shards: Iterable[Iterator[pa.RecordBatch]], documents: int) -> str | None:
    """The id up to which train documents are in the sample; None where it takes all of them.

    Args:
        shards: batches with `COLUMNS`, ids ascending in each shard, so that most of a large one need not be read.
    """
    smallest = pa.array([], pa.string())
    is_cut = False
    for batches in shards:
        for batch in batches:
            ids = batch["id"].filter(pc.invert(batch["is_held_out"]))
            both = pa.concat_arrays([smallest, ids])
            is_cut |= len(both) > documents
            smallest = both.take(pc.array_sort_indices(both)[:documents]) if len(smallest) else both[:documents]
            if is_cut and len(ids) and ids[-1].as_py() > smallest[-1].as_py():
                break
    return smallest[-1].as_py() if is_cut else None


def share_of(documents: int, share: float, least: int) -> int:
    """How many documents a share of them is, rounded up, and at least `least`."""
    return max(least, int(np.ceil(share * documents)))
