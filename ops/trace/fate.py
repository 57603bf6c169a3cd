"""What the store decided about a document, and on whose word."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from infra.artifacts.artifact import Artifact
from ops.attrition import Labels, Outcome
from ops.config import StoreConfig
from ops.shards import MisalignedShardError
from ops.trace.documents import TracedDocument, row_at


@dataclass(frozen=True)
class Fate:
    """A document's one outcome in the store, and everything that was said of it (labels by stage, ids left out)."""

    outcome: Outcome
    said: Mapping[str, Mapping[str, Any]]


def fate_of(document: TracedDocument, sets: Mapping[str, Artifact], duplicates: Mapping[str, Artifact], config: StoreConfig) -> Fate:
    """Ask every stage about one document, and the store's own rule for what follows.

    Args:
        document: no copy: a copy within a source is gone before anything is said of it.
        sets: `normalized`, `language`, `quality`, `contamination` and `tokens` of its source.
        duplicates: `exact` and `fuzzy`.

    Raises:
        MisalignedShardError: the stages speak of other documents.
    """
    held_out = row_at(sets["normalized"], document.shard, document.row, ["id", "is_held_out"])
    places = {name: (sets[name], document.shard) for name in ("language", "quality", "contamination")}
    places |= {kind: (artifact, f"{document.source}/{document.shard}") for kind, artifact in duplicates.items()}
    rows = {name: row_at(artifact, shard, document.row) for name, (artifact, shard) in places.items()}
    tokens = row_at(sets["tokens"], document.shard, document.row, ["id", "bytes"])
    for name, row in {"normalized": held_out, "tokens": tokens, **rows}.items():
        if row.pop("id") != document.id:
            raise MisalignedShardError(f"{document.source}/{document.shard}: row {document.row} of {name} is of another document")
    language, quality = rows["language"]["language"], np.float32(rows["quality"]["score"])
    labels = Labels(
        is_held_out=np.array([held_out["is_held_out"]]),
        is_contaminated=np.array([rows["contamination"]["is_contaminated"]]),
        is_fuzzy_duplicate=np.array([rows["fuzzy"]["is_duplicate"]]),
        is_exact_duplicate=np.array([rows["exact"]["is_duplicate"]]),
        is_emptied=np.array([tokens["bytes"] == 0]),
        language_is_allowed=np.array([not config.languages or language in config.languages]),
        quality_suffices=np.array([config.min_quality is None or bool(quality >= config.min_quality)]),
    )
    return Fate(Outcome(int(labels.outcomes()[0])), rows)


def labels_at(artifact: Artifact, name: str, row: int) -> dict[str, Any]:
    """What an attribute set says in one row, the id left out."""
    return {key: value for key, value in row_at(artifact, name, row).items() if key != "id"}
