"""What a stage works on: shards, each with one output file, made of row groups that lie somewhere."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from infra.artifacts.artifact import Artifact
from infra.artifacts.manifest import canonical_json
from infra.storage.streams import open_file

Tally = Counter[str]
"""What a shard counted, in whole numbers: they add up to the same sum in any order."""


@dataclass(frozen=True)
class Piece:
    """Adjacent row groups of one Parquet file (None: all of them), or a whole `.arrow` file of record batches.

    `first_row` is the place of its first row in the file.
    """

    url: str
    columns: tuple[str, ...] | None = None
    row_groups: tuple[int, ...] | None = None
    first_row: int = 0


@dataclass(frozen=True)
class Shard:
    """One unit of work, and of commitment: read `pieces` in this order, write the file `name`."""

    name: str
    index: int
    pieces: tuple[Piece, ...] = ()


class StageFunction(Protocol):
    """What a stage does to a shard: takes its record batches, yields others, counts into `tally`.

    It runs wherever the engine puts it, so it is a frozen dataclass or a function of a module. How the rows are cut into
    batches is the memory's business: the rows that come out, one behind the other, must not depend on it. What a worker
    loads once (a model) is cached by the function's module.
    """

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally, /) -> Iterator[pa.RecordBatch]: ...


def whole_shards(artifact: Artifact, names: Sequence[str], columns: Sequence[str]) -> tuple[Shard, ...]:
    """One shard for each named file of an artifact."""
    return tuple(Shard(name, index, (Piece(artifact.url_of(name), tuple(columns)),)) for index, name in enumerate(names))


def split(piece: Piece, max_bytes: int) -> Iterator[Piece]:
    """Cut a whole Parquet file between row groups into pieces of at most `max_bytes` (decoded, chosen columns), or of one row
    group where that is larger. Nothing but the footer is read; an empty file gives no piece.
    """
    with open_file(piece.url) as stream:
        footer = pq.read_metadata(stream)
    chosen: list[int] = []
    chosen_bytes = first_row = row = 0
    for group, size in enumerate(group_bytes(footer, piece.columns)):
        rows = footer.row_group(group).num_rows
        if not rows:
            continue
        if chosen and chosen_bytes + size > max_bytes:
            yield replace(piece, row_groups=tuple(chosen), first_row=first_row)
            chosen, chosen_bytes, first_row = [], 0, row
        chosen.append(group)
        chosen_bytes += size
        row += rows
    if chosen:
        yield replace(piece, row_groups=tuple(chosen), first_row=first_row)


def group_bytes(footer: pq.FileMetaData, columns: Sequence[str] | None) -> list[int]:
    """Decoded bytes of the chosen columns in each row group (of a nested column: all its leaves)."""
    sizes = []
    for group in map(footer.row_group, range(footer.num_row_groups)):
        chunks = map(group.column, range(group.num_columns))
        sizes.append(
            sum(chunk.total_uncompressed_size for chunk in chunks if columns is None or chunk.path_in_schema.partition(".")[0] in columns)
        )
    return sizes


def plan_key(*parts: object) -> str:
    """16 hex that stand for a plan: what was committed under one is never taken for another's."""
    return hashlib.sha256(canonical_json([repr(part) for part in parts])).hexdigest()[:16]
