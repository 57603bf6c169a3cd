"""The members of every cluster with their texts, cluster by cluster, in the order that `verify` wants.

What orders them stays in memory, some 50 bytes a member; ids, texts and buckets wait on local disk and are mapped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifacts
from infra.artifacts.writer import Writer
from ops.dataflow.read import read_pieces
from ops.dataflow.shard import Piece
from ops.dedup.components import Components
from ops.dedup.numbering import Numbering, Shard
from ops.dedup.verify_pair import Member
from ops.shards import check_aligned, read_batches

ASIDE = pa.schema([("id", pa.string()), ("text", pa.binary()), ("buckets", pa.list_(pa.uint64()))])
SIGNATURES = pa.schema([("id", pa.string()), ("buckets", pa.list_(pa.uint64()))])
OPEN_BATCHES = 64  # mapped, not read: kilobytes each


@dataclass(frozen=True)
class Members:
    """Arrays of [members]: who they are, and which row of which record batch of `path` holds the rest of each."""

    path: Path
    heads: NDArray[np.int64]
    numbers: NDArray[np.int64]
    held_out: NDArray[np.bool_]
    chars: NDArray[np.int64]
    batches: NDArray[np.int32]
    rows: NDArray[np.int32]

    def clusters(self) -> Iterator[tuple[int, Member]]:
        """(head, member) of every cluster: by cluster, held-out first, longest first, then by number."""
        order = np.lexsort((self.numbers, -self.chars, ~self.held_out, self.heads))
        with pa.memory_map(str(self.path)) as mapped:
            batch_at = lru_cache(OPEN_BATCHES)(pa.ipc.open_file(mapped).get_batch)
            for place in order.tolist():
                ids, texts, buckets = batch_at(int(self.batches[place])).columns
                row = int(self.rows[place])
                yield (
                    int(self.heads[place]),
                    Member(
                        number=int(self.numbers[place]),
                        id=ids[row].as_py(),
                        is_held_out=bool(self.held_out[place]),
                        chars=int(self.chars[place]),
                        text=texts[row].as_py(),
                        buckets=frozenset(buckets[row].values.to_numpy().tolist()),
                    ),
                )


def collect_members(
    folder: Path,
    normalized: Artifacts,
    minhash: Artifacts,
    numbering: Numbering,
    components: Components,
    batch_bytes: int,
    batch_rows: int,
    out: Writer,
) -> Members:
    """Put the text of every member into a file in `folder`, which takes as many bytes as these texts have.

    Args:
        batch_bytes, batch_rows: of documents read at a time; a single one may be longer.

    Raises:
        MisalignedShardError: a minhash shard was built from another normalized shard.
    """
    path = folder / "members.arrow"
    found: list[pa.RecordBatch] = []
    with pa.ipc.new_file(str(path), ASIDE) as aside:
        for shard in numbering.shards:
            signatures = _Signatures(read_batches(minhash[shard.source], shard.name, SIGNATURES.names))
            whole = Piece(normalized[shard.source].url_of(shard.name), ("id", "text", "is_held_out"))
            number = shard.start
            for batch in read_pieces([whole], batch_bytes, batch_rows):
                chosen = np.arange(*np.searchsorted(components.members, [number, number + batch.num_rows]))
                rows = pa.array(components.members[chosen] - number)
                signed = signatures.of(shard, batch["id"])
                if len(chosen):
                    kept = batch.take(rows)
                    columns = [kept["id"], kept["text"].cast(pa.binary()), signed["buckets"].take(rows)]
                    aside.write_batch(pa.RecordBatch.from_arrays(columns, schema=ASIDE))
                    chars = pc.utf8_length(kept["text"]).cast(pa.int64())
                    found.append(pa.record_batch({"member": chosen, "is_held_out": kept["is_held_out"], "chars": chars}))
                number += batch.num_rows
                out.progress(number, numbering.documents, "documents read")
    return Members(path, components.heads, components.members, *_light_columns(found))


def _light_columns(found: list[pa.RecordBatch]) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Of all members: whether they are held out, their characters, and the batch and row of each."""
    if not found:
        return np.zeros(0, bool), np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32)
    table = pa.Table.from_batches(found)
    sizes = [batch.num_rows for batch in found]
    return (
        table["is_held_out"].to_numpy(),
        table["chars"].to_numpy(),
        np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
        np.concatenate([np.arange(size, dtype=np.int32) for size in sizes]),
    )


class _Signatures:
    """A shard's signatures, taken piece by piece: documents and signatures come in batches of different lengths."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._waiting = SIGNATURES.empty_table()

    def of(self, shard: Shard, ids: pa.Array) -> pa.RecordBatch:
        """The next ones, which must be those of the documents `ids`."""
        parts = [self._waiting]
        missing = len(ids) - self._waiting.num_rows
        while missing > 0 and (batch := next(self._batches, None)) is not None:
            parts.append(pa.Table.from_batches([batch]))
            missing -= batch.num_rows
        waiting = pa.concat_tables(parts)
        taken, self._waiting = waiting.slice(0, len(ids)).combine_chunks(), waiting.slice(len(ids))
        check_aligned(f"minhash of {shard.source}/{shard.name}", ids, taken["id"])
        return pa.RecordBatch.from_arrays([column.combine_chunks() for column in taken.columns], schema=SIGNATURES)
