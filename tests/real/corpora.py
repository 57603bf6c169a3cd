"""The corpora of the real data as normalized sources."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from infra.artifacts.artifact import Artifact
from tests.ops.normalized import normalized
from tests.real.real_data import REAL_DATA


@cache
def rows_of(name: str) -> list[dict[str, Any]]:
    """Rows of one corpus: `id`, `text` and more."""
    with pa.CompressedInputStream(pa.OSFile(str(REAL_DATA / "corpus" / f"{name}.jsonl.zst")), "zstd") as stream:
        return [json.loads(line) for line in stream.read().decode().splitlines() if line.strip()]


def corpus(directory: Path, name: str) -> Artifact:
    """One corpus without exact copies; `source_id` is the row's own id."""
    texts = {row["text"]: row["id"] for row in reversed(rows_of(name))}
    return normalized(directory / name, list(texts), source_ids=list(texts.values()))
