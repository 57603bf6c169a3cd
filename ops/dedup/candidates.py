"""Proposed pairs: documents that share an LSH bucket, as star links to the bucket's first document.

A bucket of n documents needs n - 1 links to hold together, not n * (n - 1) / 2: one boilerplate page in a
million copies costs a million links.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifacts
from infra.artifacts.writer import Writer
from ops.dedup.entries import EntrySpill
from ops.dedup.numbering import Numbering, Shard
from ops.shards import read_batches

ENTRIES_PER_PART = 2_000_000  # 32 MB, about four times that while they are sorted; half a second, so a heartbeat each


@dataclass(frozen=True)
class Links:
    """left, right: [links] document numbers, left < right, every pair once. The counters are of shared buckets."""

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    shared_buckets: int
    largest_bucket: int
    capped_buckets: int


def propose_links(minhash: Artifacts, numbering: Numbering, max_bucket_documents: int, out: Writer) -> Links:
    """Group all documents by bucket.

    Args:
        max_bucket_documents: a larger bucket is cut into runs of this many, each a star of its own: copies
            inside a run still meet, and no component grows without bound through one bucket.
        out: tells progress; its scratch folder takes 16 bytes for each bucket of each document.

    Memory: one part, 32 bytes a link, and 48 bytes for each document of the part's largest bucket.
    """
    entries = sum(_entries(minhash, shard) for shard in numbering.shards)
    parts = 1 + entries // ENTRIES_PER_PART
    stars, sizes = [np.zeros((2, 0), np.int64)], [np.zeros(0, np.int64)]
    with out.scratch_folder() as folder:
        spill = EntrySpill(folder, parts)
        for shard in numbering.shards:
            number = shard.start
            for batch in read_batches(minhash[shard.source], shard.name, ["buckets"]):
                spill.add(*_exploded(batch["buckets"], number))
                number += batch.num_rows
                out.progress(number, numbering.documents, "signatures read")
        for part in range(parts):
            found, size = _stars(*spill.part(part), max_bucket_documents)
            stars.append(found)
            sizes.append(size)
            out.progress(part + 1, parts, "parts grouped")
    left, right = _distinct(np.concatenate(stars, axis=1))
    size = np.concatenate(sizes)
    return Links(
        left=left,
        right=right,
        shared_buckets=len(size),
        largest_bucket=int(size.max(initial=0)),
        capped_buckets=int((size > max_bucket_documents).sum()),
    )


def _entries(minhash: Artifacts, shard: Shard) -> int:
    """Buckets of all documents of a shard, counted once more for each that has none."""
    with minhash[shard.source].open(shard.name) as stream:
        footer = pq.read_metadata(stream)
    place = next(column for column in range(footer.num_columns) if footer.schema.column(column).path.partition(".")[0] == "buckets")
    return sum(footer.row_group(group).column(place).num_values for group in range(footer.num_row_groups))


def _exploded(buckets: pa.ListArray, start: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """[entries] each: a bucket, and the number of the document that is in it."""
    lengths = np.diff(buckets.offsets.to_numpy())
    return buckets.flatten().to_numpy(), np.repeat(np.arange(start, start + len(buckets)), lengths)


def _stars(buckets: NDArray[np.uint64], numbers: NDArray[np.int64], cap: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[2, links] the first document of each run of `cap` in a bucket, and each of the others; and [shared] sizes of shared buckets.

    Args:
        numbers: ascending.
    """
    order = np.argsort(buckets, kind="stable")
    buckets = buckets[order]
    repeats = buckets[1:] == buckets[:-1]
    shared = np.concatenate([repeats, [False]]) | np.concatenate([[False], repeats])  # most buckets hold one document
    buckets, numbers = buckets[shared], numbers[order[shared]]
    if not len(buckets):
        return np.zeros((2, 0), np.int64), np.zeros(0, np.int64)
    begins = np.flatnonzero(np.concatenate([[True], buckets[1:] != buckets[:-1]]))
    sizes = np.diff(np.append(begins, len(buckets)))
    leads = (np.arange(len(buckets)) - np.repeat(begins, sizes)) % cap == 0
    heads = numbers[leads][np.cumsum(leads) - 1]
    return _distinct(np.stack([heads[~leads], numbers[~leads]])), sizes


def _distinct(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """[2, distinct] pairs, sorted."""
    pairs = pairs[:, np.lexsort(pairs[::-1])]
    fresh = np.ones(pairs.shape[1], bool)
    fresh[1:] = (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)
    return pairs[:, fresh]
