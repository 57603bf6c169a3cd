"""Spans of documents: as columns, cut out of texts, and shown to people."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infra.artifacts.artifact import Artifact
from infra.storage.streams import open_file
from ops.dataflow.shard import Piece
from ops.dedup.numbering import Numbering
from ops.hashing.columns import TextColumn
from ops.shards import check_aligned, read_table, shard_names

SPAN = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("survivor_source", pa.string()), ("survivor_id", pa.string())])
SPANS = pa.list_(SPAN)
EXCERPT_CHARS = 400


def list_of_spans(repeats: pa.Table, number: int, rows: int, numbering: Numbering) -> pa.Array:
    """The spans of `rows` documents from `number` on, out of repeats ordered by document and place."""
    ids = [
        f"{high:016x}{low:016x}" for high, low in zip(repeats["survivor_high"].to_numpy(), repeats["survivor_low"].to_numpy(), strict=True)
    ]
    sources = numbering.sources_of(repeats["survivor"].to_numpy())
    columns = [repeats["start"].combine_chunks(), repeats["end"].combine_chunks(), sources, pa.array(ids, pa.string())]
    offsets = np.searchsorted(repeats["number"].to_numpy(), np.arange(number, number + rows + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(columns, fields=list(SPAN)), type=SPANS)


def without_spans(texts: pa.Array, spans: pa.Array) -> pa.Array:
    """The texts with their spans cut out.

    Args:
        spans: of each text a list of (`start`, `end`, ...) in bytes of its UTF-8, ascending, disjoint and not empty, as
            `paragraph_duplicates` gives them.
    """
    cuts = spans.flatten()
    if not len(cuts):
        return texts
    column = TextColumn.of(texts)
    base, sizes = int(column.offsets[0]), np.diff(column.offsets)
    rows = np.repeat(np.arange(len(spans)), np.diff(spans.offsets.to_numpy()))
    starts, ends = (column.offsets[rows] - base + cuts.field(edge).to_numpy() for edge in ("start", "end"))
    edges = np.zeros(int(sizes.sum()) + 1, np.int8)
    edges[starts] += 1
    edges[ends] -= 1
    left = column.data[base : base + int(sizes.sum())][np.cumsum(edges[:-1], dtype=np.int8) == 0]
    np.subtract.at(sizes, rows, ends - starts)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(left)])


def excerpts(source: str, normalized: Artifact, marks: Mapping[str, Piece], count: int) -> list[dict[str, Any]]:
    """The first marked paragraph of the first `count` documents that have one: ids are hashes, so a shard is a fair draw."""
    found: list[dict[str, Any]] = []
    for name in shard_names(normalized):
        if len(found) >= count:
            break
        with open_file(marks[f"{source}/{name}"].url) as stream:
            marked = pq.read_table(stream)
        rows = np.flatnonzero(marked["removed_bytes"].to_numpy())[: count - len(found)]
        if not len(rows):
            continue
        texts = read_table(normalized, name, ["id", "text"])
        check_aligned(f"{source}/{name}", texts["id"], marked["id"])
        for row in rows:
            span = marked["spans"][int(row)].as_py()[0]
            text = texts["text"][int(row)].as_py().encode()[span["start"] : span["end"]].decode()
            found.append({"source": source, "id": marked["id"][int(row)].as_py(), **span, "text": text[:EXCERPT_CHARS]})
    return found
