"""Documents by id or by URL, and from each the way back: to its shard and row, and to the bytes it was read from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.artifacts.artifact import Artifact
from ops.shards import shard_names

COPIES = "duplicates.parquet"
COLUMNS = ("id", "source_id", "media_type", "extractor", "warc_file", "warc_offset", "warc_length", "is_held_out")


@dataclass(frozen=True)
class TracedDocument:
    """A row of a normalized source.

    `url`: what the source calls it. `warc_file`, `warc_offset`, `warc_length`: stored bytes in the raw artifact; None for what
    came out of no archive. `is_copy`: its text is that of the source's document with the same id, and was left out for it.
    """

    source: str
    id: str
    url: str
    media_type: str
    extractor: str
    warc_file: str | None
    warc_offset: int | None
    warc_length: int | None
    is_held_out: bool
    shard: str
    row: int
    is_copy: bool


def documents_with_id(source: str, normalized: Artifact, ids: frozenset[str]) -> Iterator[TracedDocument]:
    """Documents and copies with one of these ids. Shards are sorted by id, so only the row groups that may hold one are read."""
    for name in (*shard_names(normalized), COPIES):
        yield from _matching(source, normalized, name, "id", ids)


def documents_with_url(source: str, normalized: Artifact, url: str) -> Iterator[TracedDocument]:
    """Documents and copies that came from this URL (of a file or a row: its name). Reads one column of the whole source."""
    for name in (*shard_names(normalized), COPIES):
        yield from _matching(source, normalized, name, "source_id", frozenset({url}))


def text_of(normalized: Artifact, document: TracedDocument) -> str:
    """The text of a document."""
    return str(row_at(normalized, document.shard, document.row, ["text"])["text"])


def row_at(artifact: Artifact, name: str, row: int, columns: list[str] | None = None) -> dict[str, Any]:
    """One row of a shard. Reads the row group that holds it.

    Raises:
        IndexError: the shard is shorter.
    """
    left = row
    with artifact.open(name) as stream, pq.ParquetFile(stream) as shard:
        for group in range(shard.num_row_groups):
            rows = shard.metadata.row_group(group).num_rows
            if left < rows:
                found: dict[str, Any] = read_group(shard, group, columns).slice(left, 1).to_pylist()[0]
                return found
            left -= rows
    raise IndexError(f"{artifact.url}: {name} has no row {row}")


def read_group(shard: pq.ParquetFile, group: int, columns: list[str] | None = None) -> pa.Table:
    """A row group, read by this thread alone: a command ends at once, and a helper that still lets go of a Python stream then aborts it."""
    return shard.read_row_group(group, columns=columns, use_threads=False)


def _matching(source: str, normalized: Artifact, name: str, column: str, wanted: frozenset[str]) -> Iterator[TracedDocument]:
    if name not in normalized.names:
        return
    values = pa.array(sorted(wanted), pa.string())
    with normalized.open(name) as stream, pq.ParquetFile(stream) as shard:
        first = 0
        for group in range(shard.num_row_groups):
            about = shard.metadata.row_group(group)
            if may_hold(about, column, wanted):
                mask = pc.is_in(read_group(shard, group, [column])[column], value_set=values)
                rows = pc.indices_nonzero(mask.combine_chunks()).to_pylist()
                if rows:
                    found = read_group(shard, group, list(COLUMNS)).take(rows)
                    for row, fields in zip(rows, found.to_pylist(), strict=True):
                        yield _document(source, name, first + row, fields)
            first += about.num_rows


def may_hold(group: Any, column: str, wanted: frozenset[str]) -> bool:
    """Whether a row group's statistics allow one of the values in a column; True where there are none."""
    for index in range(group.num_columns):
        chunk = group.column(index)
        if chunk.path_in_schema == column and chunk.statistics is not None and chunk.statistics.has_min_max:
            low, high = chunk.statistics.min, chunk.statistics.max
            return any(low <= value <= high for value in wanted)
    return True


def _document(source: str, name: str, row: int, fields: dict[str, Any]) -> TracedDocument:
    url = fields.pop("source_id")
    return TracedDocument(source=source, url=url, shard=name, row=row, is_copy=name == COPIES, **fields)
