"""The feature index: sorted hashes, whose they are, and which are everybody's boilerplate."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from ops.hashing.code_points import character_classes
from ops.hashing.columns import TextColumn
from ops.hashing.paragraphs import column_features, count_documents
from ops.shards import read_table

INDEX_FILE, EVALUATIONS_FILE = "index.parquet", "evaluations.json"
HELD_OUT_FOLDER = "held_out/"
SCHEMA = pa.schema([("feature", pa.uint64()), ("evaluations", pa.list_(pa.int32())), ("is_boilerplate", pa.bool_())])


@dataclass(frozen=True)
class FeatureIndex:
    """An exact index: membership by binary search inside a prefix's range, no false positives but hash collisions.

    features: [entries] uint64, ascending, unique. owners: [entries] lists of places in `evaluations`, as an offset
    and a value array. is_boilerplate: [entries].
    """

    features: NDArray[np.uint64]
    owner_offsets: NDArray[np.int32]
    owners: NDArray[np.int32]
    is_boilerplate: NDArray[np.bool_]
    evaluations: tuple[str, ...]
    ngram_tokens: int
    short_paragraph_tokens: int

    @classmethod
    def read(cls, artifact: Artifact) -> "FeatureIndex":
        table = read_table(artifact, INDEX_FILE).combine_chunks()
        about = artifact.read_json(EVALUATIONS_FILE)
        owners = table["evaluations"].combine_chunks()
        return cls(
            features=table["feature"].to_numpy(),
            owner_offsets=owners.offsets.to_numpy() if len(owners) else np.zeros(1, np.int32),
            owners=owners.values.to_numpy(),
            is_boilerplate=table["is_boilerplate"].to_numpy().astype(bool),
            evaluations=tuple(entry["name"] for entry in about["evaluations"]),
            ngram_tokens=about["ngram_tokens"],
            short_paragraph_tokens=about["short_paragraph_tokens"],
        )

    @cached_property
    def shift(self) -> np.uint64:
        """Right shift that turns a feature into its prefix: about one entry to a prefix."""
        return np.uint64(64 - min(24, max(1, len(self.features).bit_length())))

    @cached_property
    def prefixes(self) -> NDArray[np.int64]:
        """Where each prefix's entries begin, and the end."""
        return prefix_starts(self.features, self.shift)

    @cached_property
    def belongs_to_an_evaluation(self) -> NDArray[np.bool_]:
        """[entries]: owned by more than held-out documents."""
        is_evaluation = np.array([not name.startswith(HELD_OUT_FOLDER) for name in self.evaluations] or [False])
        entries = np.repeat(np.arange(len(self.features)), np.diff(self.owner_offsets))
        owned = np.zeros(len(self.features), bool)
        owned[entries[is_evaluation[self.owners]]] = True
        return owned

    def owners_of(self, places: NDArray[np.int64]) -> list[str]:
        """The evaluations that own any of these entries, sorted."""
        owners = {int(owner) for place in places for owner in self.owners[self.owner_offsets[place] : self.owner_offsets[place + 1]]}
        return sorted(self.evaluations[owner] for owner in owners)

    def count_documents(self, texts: TextColumn, counts: NDArray[np.int64]) -> None:
        """Add to `counts` in how many texts each entry occurs."""
        found, starts = features_of_column(texts, self.ngram_tokens, self.short_paragraph_tokens)
        count_documents(found, starts, self.features, self.prefixes, self.shift, counts)


def prefix_starts(features: NDArray[np.uint64], shift: np.uint64) -> NDArray[np.int64]:
    count = 1 << (64 - int(shift))
    firsts = np.arange(count, dtype=np.uint64) << shift
    return np.append(np.searchsorted(features, firsts), len(features)).astype(np.int64)


def features_of_column(texts: TextColumn, ngram_tokens: int, short_paragraph_tokens: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Features of every row, one row after another, and [rows + 1] offsets into them."""
    found, starts = column_features(texts.data, texts.offsets, character_classes(), ngram_tokens, short_paragraph_tokens)
    return found, starts
