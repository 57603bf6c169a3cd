"""Exact duplicates across sources: documents of equal id, which is the hash of their text."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.config import ExactDedupConfig
from ops.dedup.numbering import Numbering, Shard
from ops.dedup.shuffle import insert, parts_for, shuffle_database
from ops.shards import read_batches, read_table, write_table

SCHEMA = pa.schema([("id", pa.string()), ("is_duplicate", pa.bool_()), ("survivor_source", pa.string()), ("survivor_id", pa.string())])
TRAIN = 1 << 62  # added to a train document's rank: any held-out copy comes before it


class ExactDedupSourceStats(Stats):
    """One source's documents, and how many of them survive elsewhere."""

    documents: int
    duplicates: int


class ExactDedupStats(Stats):
    """Documents seen and flagged, in all and by source."""

    documents: int
    duplicates: int
    sources: dict[str, ExactDedupSourceStats]


@program(version="1")
def exact_duplicates(config: ExactDedupConfig, normalized: Artifacts, out: Writer) -> ExactDedupStats:
    """Flag every document whose text survives elsewhere.

    Args:
        normalized: every source; ids are unique within one.
        out: `{source}/` co-partitioned with each source; `id`, `is_duplicate: bool`, and of the copy that
            survives `survivor_source`, `survivor_id` (null where the document itself does).

    A held-out copy survives before any train copy, so no held-out text is trained on. Else the first by
    (source name, shard, row) survives, whatever order anything arrived in.
    """
    numbering = Numbering.of(normalized)
    numbers, survivors = find_repeats(config, normalized, numbering, out)
    for shard in numbering.shards:
        ids = read_table(normalized[shard.source], shard.name, ["id"])["id"].combine_chunks()
        write_table(out, f"{shard.source}/{shard.name}", flags(shard, ids, numbers, survivors, numbering))
    return stats_of(numbering, numbers)


def find_repeats(
    config: ExactDedupConfig, normalized: Artifacts, numbering: Numbering, out: Writer
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The documents to remove, ascending, and the one that survives in place of each."""
    found: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    with shuffle_database(out, config.shuffle_memory_bytes) as database:
        database.execute("CREATE TABLE documents (id VARCHAR, prefix INTEGER, rank BIGINT)")
        for shard in numbering.shards:
            number = shard.start
            for batch in read_batches(normalized[shard.source], shard.name, ["id", "is_held_out"]):
                insert(database, "documents", _ranked(batch, number))
                number += batch.num_rows
                out.progress(number, numbering.documents, "documents read")
        parts = parts_for(numbering.documents)
        for part in range(parts):
            rows = database.execute(
                """
                WITH part AS (SELECT id, rank FROM documents WHERE prefix % $parts = $part),
                repeated AS (SELECT id, min(rank) AS survivor FROM part GROUP BY id HAVING count(*) > 1)
                SELECT rank, survivor FROM part JOIN repeated USING (id) WHERE rank <> survivor
                """,
                {"part": part, "parts": parts},
            ).fetchnumpy()
            found.append((_number(rows["rank"]), _number(rows["survivor"])))
            out.progress(part + 1, parts, "parts grouped")
    numbers, survivors = (np.concatenate(side) for side in zip(*found, strict=True))
    order = np.argsort(numbers)
    return numbers[order], survivors[order]


def _ranked(batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
    held_out = batch["is_held_out"].to_numpy(zero_copy_only=False)
    ranks = np.arange(start, start + batch.num_rows) + np.where(held_out, 0, TRAIN)
    prefixes = np.array([int(document[:4], 16) for document in batch["id"].to_pylist()], np.int32)  # ids are hashes, so evenly spread
    return pa.record_batch({"id": batch["id"], "prefix": pa.array(prefixes), "rank": pa.array(ranks)})


def _number(ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray(ranks, np.int64) & (TRAIN - 1)


def flags(shard: Shard, ids: pa.Array, numbers: NDArray[np.int64], survivors: NDArray[np.int64], numbering: Numbering) -> pa.Table:
    """The rows of one shard: all of `ids`, flagged where their number is among `numbers`."""
    first, last = np.searchsorted(numbers, [shard.start, shard.start + shard.rows])
    rows = numbers[first:last] - shard.start
    is_duplicate = np.zeros(shard.rows, bool)
    is_duplicate[rows] = True
    place = np.full(shard.rows, -1)
    place[rows] = np.arange(len(rows))
    places = pa.array(place, mask=~is_duplicate)
    sources = numbering.sources_of(survivors[first:last]).take(places)
    survivor_ids = ids.take(pa.array(np.arange(shard.rows), mask=~is_duplicate))  # equal text, so equal id
    return pa.table([ids, pa.array(is_duplicate), sources, survivor_ids], schema=SCHEMA)


def stats_of(numbering: Numbering, numbers: NDArray[np.int64]) -> ExactDedupStats:
    removed = np.bincount(numbering.source_indices(numbers), minlength=len(numbering.sources))
    documents = dict.fromkeys(numbering.sources, 0)
    for shard in numbering.shards:
        documents[shard.source] += shard.rows
    sources = {
        source: ExactDedupSourceStats(documents=documents[source], duplicates=int(removed[index]))
        for index, source in enumerate(numbering.sources)
    }
    return ExactDedupStats(documents=numbering.documents, duplicates=len(numbers), sources=sources)
