"""What the store decided about a document, and on whose word."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from infra.artifacts.artifact import Artifact
from ops.attrition import Outcome
from ops.config import StoreConfig
from ops.join import read_labels
from ops.trace.documents import TracedDocument


@dataclass(frozen=True)
class Fate:
    """A document's one outcome in the store, and everything that was said of it (labels by stage, ids left out)."""

    outcome: Outcome
    said: Mapping[str, Mapping[str, Any]]


def fate_of(document: TracedDocument, sets: Mapping[str, Artifact], duplicates: Mapping[str, Artifact], config: StoreConfig) -> Fate:
    """Ask every stage about one document, and the store's own rule for what follows.

    Args:
        document: no copy: a copy within a source is gone before anything is said of it.
        sets: `normalized`, `language`, `quality` and `contamination` of its source.
        duplicates: `exact` and `fuzzy`.

    Raises:
        MisalignedShardError: the stages speak of other documents.
    """
    labels, ids, _ = read_labels(document.source, document.shard, dict(sets), dict(duplicates), config)
    assert ids[document.row].as_py() == document.id
    outcome = Outcome(int(labels.outcomes()[document.row]))
    rows = {name: labels_at(sets[name], document.shard, document.row) for name in ("language", "quality", "contamination")}
    rows |= {name: labels_at(artifact, f"{document.source}/{document.shard}", document.row) for name, artifact in duplicates.items()}
    return Fate(outcome, rows)


def labels_at(artifact: Artifact, name: str, row: int) -> dict[str, Any]:
    """What an attribute set says in one row, the id left out. Reads one row group."""
    with artifact.open(name) as stream, pq.ParquetFile(stream) as shard:
        for group in range(shard.num_row_groups):
            rows = shard.metadata.row_group(group).num_rows
            if row < rows:
                found: dict[str, Any] = shard.read_row_group(group).slice(row, 1).to_pylist()[0]
                return {key: value for key, value in found.items() if key != "id"}
            row -= rows
    raise IndexError(f"{artifact.url}: {name} has no row {row}")
