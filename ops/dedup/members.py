"""The members of every cluster with their texts, cluster by cluster, in the order that `verify` wants."""

from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.artifacts.artifact import Artifacts
from infra.artifacts.writer import Writer
from ops.dedup.components import Components
from ops.dedup.numbering import Numbering, Shard
from ops.dedup.shuffle import insert
from ops.dedup.verify_pair import Member
from ops.shards import check_aligned, read_batches, read_table

ROWS_PER_FETCH = 256  # a fetched batch of whole books is 100 MB


def collect_members(
    database: duckdb.DuckDBPyConnection,
    normalized: Artifacts,
    minhash: Artifacts,
    numbering: Numbering,
    components: Components,
    batch_rows: int,
    out: Writer,
) -> int:
    """Put the text of every member into the database; returns their UTF-8 bytes.

    Raises:
        MisalignedShardError: a minhash shard was built from another normalized shard.
    """
    database.execute(
        """CREATE TABLE members (head BIGINT, number BIGINT, id VARCHAR, is_held_out BOOLEAN, chars BIGINT,
        text BLOB, buckets UBIGINT[])"""
    )
    total = 0
    for shard in numbering.shards:
        signatures = read_table(minhash[shard.source], shard.name, ["id", "buckets"]).combine_chunks()
        start = shard.start
        for batch in read_batches(normalized[shard.source], shard.name, ["id", "text", "is_held_out"], batch_rows):
            rows = _member_rows(batch, signatures.slice(start - shard.start, batch.num_rows), start, shard, components)
            if rows.num_rows:
                insert(database, "members", rows)
                total += pc.sum(pc.binary_length(rows["text"])).as_py()
            start += batch.num_rows
            out.progress(start, numbering.documents, "documents read")
    return total


def _member_rows(batch: pa.RecordBatch, signatures: pa.Table, start: int, shard: Shard, components: Components) -> pa.Table:
    check_aligned(f"minhash of {shard.source}/{shard.name}", batch["id"], signatures["id"].combine_chunks())
    first, last = np.searchsorted(components.members, [start, start + batch.num_rows])
    numbers = components.members[first:last]
    rows = pa.array(numbers - start)
    chosen = batch.take(rows)
    return pa.table(
        {
            "head": pa.array(components.heads[first:last]),
            "number": pa.array(numbers),
            "id": chosen["id"],
            "is_held_out": chosen["is_held_out"],
            "chars": pc.cast(pc.utf8_length(chosen["text"]), pa.int64()),
            "text": chosen["text"].cast(pa.binary()),
            "buckets": signatures["buckets"].take(rows),
        }
    )


def clusters(database: duckdb.DuckDBPyConnection, part: int, parts: int) -> Iterator[tuple[int, Member]]:
    """(head, member) of every cluster of one part: by cluster, held-out first, longest first, then by number."""
    result = database.execute(
        """SELECT head, number, id, is_held_out, chars, text, buckets FROM members WHERE head % $parts = $part
        ORDER BY head, is_held_out DESC, chars DESC, number""",
        {"part": part, "parts": parts},
    )
    while rows := result.fetchmany(ROWS_PER_FETCH):
        for head, number, document, is_held_out, chars, text, buckets in rows:
            yield head, Member(number, document, is_held_out, chars, text, frozenset(buckets))
