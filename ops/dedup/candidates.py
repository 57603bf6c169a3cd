"""Proposed pairs: documents that share an LSH bucket, as star links to the bucket's first document.

A bucket of n documents needs n - 1 links to hold together, not n * (n - 1) / 2: one boilerplate page in a
million copies costs a million links.
"""

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifacts
from infra.artifacts.writer import Writer
from ops.dedup.numbering import Numbering
from ops.dedup.shuffle import insert, parts_for
from ops.shards import read_batches


@dataclass(frozen=True)
class Links:
    """left, right: [links] document numbers, left < right. The counters are of shared buckets."""

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    shared_buckets: int
    largest_bucket: int
    capped_buckets: int


def propose_links(
    database: duckdb.DuckDBPyConnection, minhash: Artifacts, numbering: Numbering, max_bucket_documents: int, out: Writer
) -> Links:
    """Group all documents by bucket.

    Args:
        max_bucket_documents: a larger bucket is cut into runs of this many, each a star of its own: copies
            inside a run still meet, and no component grows without bound through one bucket.
    """
    database.execute("CREATE TABLE buckets (bucket UBIGINT, number BIGINT)")
    entries = 0
    for shard in numbering.shards:
        number = shard.start
        for batch in read_batches(minhash[shard.source], shard.name, ["buckets"]):
            insert(database, "buckets", _exploded(batch["buckets"], number))
            number += batch.num_rows
            out.progress(number, numbering.documents, "signatures read")
            entries += len(batch["buckets"].flatten())
    links, sizes = [], []
    parts = parts_for(entries)
    for part in range(parts):
        database.execute(_REPEATED, {"part": part, "parts": parts})
        sizes.append(database.execute("SELECT size FROM repeated").fetchnumpy()["size"])
        links.append(database.execute(_STARS, {"cap": max_bucket_documents}).fetchnumpy())
        if (sizes[-1] > max_bucket_documents).any():
            links.append(database.execute(_RUNS, {"cap": max_bucket_documents}).fetchnumpy())
        out.progress(part + 1, parts, "parts grouped")
    size = np.concatenate(sizes)
    return Links(
        left=np.concatenate([found["head"] for found in links]).astype(np.int64),
        right=np.concatenate([found["number"] for found in links]).astype(np.int64),
        shared_buckets=len(size),
        largest_bucket=int(size.max(initial=0)),
        capped_buckets=int((size > max_bucket_documents).sum()),
    )


_REPEATED = """
CREATE OR REPLACE TEMP TABLE repeated AS
SELECT bucket, min(number) AS head, count(*) AS size
FROM buckets WHERE bucket % $parts = $part GROUP BY bucket HAVING count(*) > 1
"""

_STARS = """
SELECT DISTINCT head, number FROM buckets JOIN repeated USING (bucket) WHERE head <> number AND size <= $cap
"""

_RUNS = """
SELECT DISTINCT head, number FROM (
    SELECT min(number) OVER (PARTITION BY bucket, run) AS head, number FROM (
        SELECT bucket, number, (row_number() OVER (PARTITION BY bucket ORDER BY number) - 1) // $cap AS run
        FROM buckets JOIN repeated USING (bucket) WHERE size > $cap
    )
) WHERE head <> number
"""


def _exploded(buckets: pa.Array, start: int) -> pa.RecordBatch:
    lengths = np.diff(buckets.offsets.to_numpy())
    numbers = np.repeat(np.arange(start, start + len(buckets)), lengths)
    return pa.record_batch({"bucket": buckets.flatten(), "number": pa.array(numbers)})
