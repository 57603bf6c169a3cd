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


def without_spans(texts: pa.Array, spans: pa.Array) -> pa.StringArray:
    """The texts with their spans cut out. Spans are bytes of UTF-8, ascending and disjoint, as `paragraph_duplicates` gives them."""
    if not len(spans.flatten()):
        return texts
    kept = []
    for text, cuts in zip(texts.to_pylist(), spans.to_pylist(), strict=True):
        data, at, parts = text.encode(), 0, []
        for cut in cuts:
            parts.append(data[at : cut["start"]])
            at = cut["end"]
        kept.append(b"".join([*parts, data[at:]]).decode())
    return pa.array(kept, pa.string())


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
