"""Builders of normalized sources for tests of the stages that read them."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import xxhash

from infra.artifacts.artifact import Artifact
from ops.shards import shard_name
from tests.builders import artifact_of


def document_id(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode())


def normalized_source(directory: Path, texts: Sequence[str], *, held_out: Sequence[str] = (), shards: int = 1) -> Artifact:
    """A normalized artifact of the given texts: rows sorted by id, cut into shards; texts in `held_out` are flagged."""
    rows = sorted(((document_id(text), text, text in set(held_out)) for text in texts), key=lambda row: row[0])
    return artifact_of(directory, {shard_name(i, shards): _table(rows[i::shards]) for i in range(shards)})


def _table(rows: list[tuple[str, str, bool]]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([row[0] for row in rows], pa.string()),
            "text": pa.array([row[1] for row in rows], pa.string()),
            "source_id": pa.array([f"test:{row[0][:6]}" for row in rows], pa.string()),
            "is_held_out": pa.array([row[2] for row in rows], pa.bool_()),
        }
    )
