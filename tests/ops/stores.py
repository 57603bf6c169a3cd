"""Builders of everything a store is made of, and of stores, for tests of their readers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from ops.config import StoreConfig
from ops.shards import shard_name, write_table
from ops.store import build_store
from tests.builders import artifact_of, publish, run_program

TOKEN_BYTES = 3  # of every token of the test vocabulary but the specials
SCHEMAS = {
    "normalized": [("id", pa.string()), ("text", pa.string()), ("is_held_out", pa.bool_())],
    "language": [("id", pa.string()), ("language", pa.string()), ("score", pa.float32())],
    "quality": [("id", pa.string()), ("score", pa.float32()), ("quality_bucket", pa.int8())],
    "contamination": [("id", pa.string()), ("is_contaminated", pa.bool_())],
    "tokens": [("id", pa.string()), ("input_ids", pa.list_(pa.int32())), ("bytes", pa.int64())],
    "flags": [("id", pa.string()), ("is_duplicate", pa.bool_())],
}


@dataclass(frozen=True)
class Document:
    """One document and what the stages said about it."""

    name: str
    tokens: tuple[int, ...]
    held_out: bool = False
    contaminated: bool = False
    fuzzy: bool = False
    exact: bool = False
    language: str = "en"
    score: float = 0.5
    quality: int = 2

    @property
    def id(self) -> str:
        return xxhash.xxh3_128_hexdigest(self.name.encode())


def store_inputs(directory: Path, sources: Mapping[str, Sequence[Document]], *, shards: int = 1, vocab_size: int = 50) -> dict[str, object]:
    """The seven inputs of `build_store`, co-partitioned."""
    per_source: dict[str, dict[str, Artifact]] = {name: {} for name in SCHEMAS if name != "flags"}
    duplicates: dict[str, dict[str, pa.Table]] = {"exact": {}, "fuzzy": {}}
    for source, documents in sorted(sources.items()):
        rows = sorted(documents, key=lambda document: document.id)
        parts = {shard_name(i, shards): rows[i::shards] for i in range(shards)}
        for kind in per_source:
            tables = {name: _table(kind, [_row(kind, document) for document in part]) for name, part in parts.items()}
            if kind == "tokens":
                per_source[kind][source] = tokens_artifact(directory / kind / source, tables, vocab_size)
            else:
                per_source[kind][source] = artifact_of(directory / kind / source, tables)
        for kind, tables in duplicates.items():
            tables |= {f"{source}/{name}": _table("flags", [(d.id, getattr(d, kind)) for d in part]) for name, part in parts.items()}
    flags = {f"{kind}_duplicates": artifact_of(directory / kind, tables) for kind, tables in duplicates.items()}
    return {**per_source, **flags}


def tokens_artifact(directory: Path, tables: Mapping[str, pa.Table], vocab_size: int) -> Artifact:
    out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
    for name, table in tables.items():
        write_table(out, name, table)
    sizes = np.full(vocab_size, TOKEN_BYTES, np.int32)
    sizes[:2] = 0
    with out.open("token_bytes.npy") as stream:
        np.save(stream, sizes)
    return publish(directory, out, {"vocab_size": vocab_size, "end_of_text_id": 0, "tokenizer_digest": "t" * 64})


def store_of(directory: Path, sources: Mapping[str, Sequence[Document]], config: StoreConfig | None = None, **inputs: int) -> Artifact:
    """A store of the given documents."""
    return run_program(build_store, config or StoreConfig(), directory / "store", **store_inputs(directory, sources, **inputs))  # type: ignore[arg-type]


def _row(kind: str, document: Document) -> tuple[object, ...]:
    fields = {
        "normalized": ("x" * (TOKEN_BYTES * len(document.tokens)), document.held_out),
        "language": (document.language, 1.0),
        "quality": (document.score, document.quality),
        "contamination": (document.contaminated,),
        "tokens": (list(document.tokens), TOKEN_BYTES * len(document.tokens)),
    }
    return (document.id, *fields[kind])


def _table(kind: str, rows: list[tuple[object, ...]]) -> pa.Table:
    schema = pa.schema(SCHEMAS[kind])
    return pa.Table.from_arrays([pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)], schema=schema)
