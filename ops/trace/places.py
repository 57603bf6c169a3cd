"""Where documents lie in a store: bucket, index, and the tokens that are theirs."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.artifacts.artifact import Artifact
from ops.cache import Ledger, TokenCache
from ops.trace.documents import may_hold, read_group


@dataclass(frozen=True)
class Place:
    """A document in a bucket: it is number `index` there, and owns the tokens [start, end) of the bucket's stream."""

    source: str
    id: str
    split: str
    folder: str
    index: int
    start: int
    end: int


def places_of(store: Artifact, ledger: Ledger, ids: frozenset[str]) -> Iterator[Place]:
    """Every place of documents with one of these ids, under whichever source they came."""
    values = pa.array(sorted(ids), pa.string())
    for bucket in ledger.buckets:
        with store.open(f"{bucket.folder}/documents.parquet") as stream, pq.ParquetFile(stream) as table:
            first = 0
            for group in range(table.num_row_groups):
                about = table.metadata.row_group(group)
                if may_hold(about, "id", ids):
                    rows = read_group(table, group, ["source", "id"])
                    for row in pc.indices_nonzero(pc.is_in(rows["id"], value_set=values).combine_chunks()).to_pylist():
                        cache, index = TokenCache.open(store, bucket.folder), first + row
                        start, end = int(cache.offsets[index]), int(cache.offsets[index + 1])
                        yield Place(rows["source"][row].as_py(), rows["id"][row].as_py(), bucket.split, bucket.folder, index, start, end)
                first += about.num_rows
