"""Normalized sources made of given texts."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import xxhash

from infra.artifacts.artifact import Artifact
from ops.shards import shard_name
from tests.builders import artifact_of


def id_of(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode())


def normalized(
    directory: Path,
    texts: Iterable[str],
    *,
    held_out: Iterable[str] = (),
    shards: int = 1,
    media_type: str = "text/plain",
    source_ids: Sequence[str] | None = None,
) -> Artifact:
    """A normalized source: distinct texts, sorted by id, cut into equal shards."""
    kept = set(held_out)
    given = dict.fromkeys([*texts, *kept])
    names = dict(zip(given, source_ids, strict=True)) if source_ids else {}
    rows = sorted((id_of(text), text, names.get(text, f"test:{n}")) for n, text in enumerate(given))
    size = -(-len(rows) // shards) or 1
    tables = {shard_name(i, shards): _table(rows[i * size : (i + 1) * size], kept, media_type) for i in range(shards)}
    return artifact_of(directory, tables)


def _table(rows: list[tuple[str, str, str]], held_out: set[str], media_type: str) -> pa.Table:
    count = len(rows)
    return pa.table(
        {
            "id": pa.array([row[0] for row in rows], pa.string()),
            "text": pa.array([row[1] for row in rows], pa.string()),
            "source_id": pa.array([row[2] for row in rows], pa.string()),
            "media_type": pa.array([media_type] * count, pa.string()),
            "extractor": pa.array(["plain/1"] * count, pa.string()),
            "warc_file": pa.nulls(count, pa.string()),
            "warc_offset": pa.nulls(count, pa.int64()),
            "warc_length": pa.nulls(count, pa.int64()),
            "is_held_out": pa.array([row[1] in held_out for row in rows], pa.bool_()),
        }
    )
