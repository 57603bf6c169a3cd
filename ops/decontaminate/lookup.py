"""The index of passages: sorted features, whose they are, and which are everybody's boilerplate."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from ops.decontaminate.gather import FUNCTION, HELD_OUT_FOLDER, KINDS
from ops.hashing import passages
from ops.hashing.passage_hits import FULL_WEIGHT
from ops.shards import read_table

FEATURES_FILE, PASSAGES_FILE, EVALUATIONS_FILE = "features.parquet", "passages.parquet", "evaluations.json"
FEATURES = pa.schema(
    [("feature", pa.uint64()), ("lengths", pa.uint16()), ("passages", pa.list_(pa.int32())), ("is_boilerplate", pa.bool_())]
)
PASSAGES = pa.schema(
    [
        ("evaluation", pa.int32()),
        ("item", pa.string()),
        ("field", pa.string()),
        ("kind", pa.string()),
        ("words", pa.int32()),
        ("holders", pa.int32()),
    ]
)
ENTRIES_PER_BLOCK = 4  # of 64 bits, at most: three bits each let 0.5 % of all words through
ENTRIES_PER_PREFIX = 4


@dataclass(frozen=True)
class PassageIndex:
    """Exact: membership by binary search behind a bit filter, no false positives but hash collisions.

    features: [entries] uint64, ascending, unique. lengths: [entries], of the short passages that begin so.
    owner_offsets, owners: the passages of each entry. is_boilerplate: [entries]. passages: as `PASSAGES` has them.
    """

    features: NDArray[np.uint64]
    lengths: NDArray[np.uint16]
    owner_offsets: NDArray[np.int64]
    owners: NDArray[np.int64]
    is_boilerplate: NDArray[np.bool_]
    passages: pa.Table
    evaluations: tuple[str, ...]
    ngram_words: int
    function_tokens: int

    @classmethod
    def read(cls, artifact: Artifact) -> "PassageIndex":
        table = read_table(artifact, FEATURES_FILE).combine_chunks()
        about = artifact.read_json(EVALUATIONS_FILE)
        owners = table["passages"].combine_chunks()
        return cls(
            features=table["feature"].to_numpy(),
            lengths=table["lengths"].to_numpy(),
            owner_offsets=owners.offsets.to_numpy().astype(np.int64) if len(owners) else np.zeros(1, np.int64),
            owners=owners.values.to_numpy().astype(np.int64),
            is_boilerplate=table["is_boilerplate"].to_numpy().astype(bool),
            passages=read_table(artifact, PASSAGES_FILE).combine_chunks(),
            evaluations=tuple(entry["name"] for entry in about["evaluations"]),
            ngram_words=about["ngram_words"],
            function_tokens=about["function_tokens"],
        )

    @cached_property
    def lookup(self) -> passages.Lookup:
        shift = np.uint64(64 - _bits(len(self.features) // ENTRIES_PER_PREFIX))
        block_shift = np.uint64(64 - _bits(len(self.features) // ENTRIES_PER_BLOCK))
        blocks = np.zeros(1 << (64 - int(block_shift)), np.uint64)
        passages.fill_filter(self.features, blocks, block_shift)
        return passages.Lookup(self.features, prefix_starts(self.features, shift), shift, blocks, block_shift, self.lengths)

    @cached_property
    def is_held_out(self) -> NDArray[np.bool_]:
        """[passages]: of a held-out document rather than of an evaluation."""
        by_evaluation = np.array([name.startswith(HELD_OUT_FOLDER) for name in self.evaluations] or [False])
        evaluations: NDArray[np.int32] = self.passages["evaluation"].to_numpy()
        return by_evaluation[evaluations]

    @cached_property
    def evaluation_of(self) -> NDArray[np.int64]:
        """[passages]: place in `evaluations`."""
        found: NDArray[np.int64] = self.passages["evaluation"].to_numpy().astype(np.int64)
        return found

    @cached_property
    def kind_of(self) -> NDArray[np.int64]:
        """[passages]: place in `KINDS`."""
        found: NDArray[np.int64] = pc.index_in(self.passages["kind"], pa.array(KINDS)).to_numpy().astype(np.int64)
        return found

    @cached_property
    def weights(self) -> NDArray[np.int64]:
        """[owners]: what an entry weighs for one of its passages: the less, the more passages of its kind have it."""
        entries = np.repeat(np.arange(len(self.features)), np.diff(self.owner_offsets))
        groups = 2 * entries + self.is_held_out[self.owners]
        return FULL_WEIGHT // np.bincount(groups, minlength=1)[groups]

    @cached_property
    def has_functions(self) -> bool:
        return KINDS[FUNCTION] in self.passages["kind"].unique().to_pylist()

    def weight_of_passages(self, dropped: NDArray[np.bool_]) -> NDArray[np.int64]:
        """[passages]: the weight of all their entries but the dropped ones."""
        entries = np.repeat(np.arange(len(self.features)), np.diff(self.owner_offsets))
        totals = np.zeros(self.passages.num_rows, np.int64)
        np.add.at(totals, self.owners, np.where(dropped[entries], 0, self.weights))
        return totals


def _bits(count: int) -> int:
    """Bits that number at least `count` places."""
    return max(1, count.bit_length())


def prefix_starts(features: NDArray[np.uint64], shift: np.uint64) -> NDArray[np.int64]:
    """Where each prefix's entries begin in sorted features, and the end."""
    count = 1 << (64 - int(shift))
    firsts = np.arange(count, dtype=np.uint64) << shift
    return np.append(np.searchsorted(features, firsts), len(features)).astype(np.int64)
