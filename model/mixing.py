"""Which window of which bucket a run reads at which place: a pure function of the place, with no state to save."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ops.permutation import key_of, permute

Ints = npt.NDArray[np.int64]

SLOT, WINDOW = 1, 2  # what a key is for: the order inside a block, the order of a bucket's windows in one epoch


@dataclass(frozen=True)
class Draws:
    """Where sequences come from; arrays of one shape."""

    bucket: Ints
    epoch: Ints
    window: Ints


@dataclass(frozen=True)
class MixingPlan:
    """A block-deterministic mixture with re-shuffled epochs.

    Every block of `block_sequences` holds exactly `counts[stage, bucket]` sequences of each bucket, in an order keyed by the block.
    A bucket's sequences are its windows in an order keyed by the epoch, each once, before the next epoch begins.

    Attributes:
        stage_blocks: [stages] first block of each stage, ascending from 0.
        counts: [stages, buckets], each row summing to `block_sequences`.
        windows: [buckets] windows of each bucket, at least 1.
    """

    block_sequences: int
    stage_blocks: Ints
    counts: Ints
    windows: Ints
    seed: int

    def draws(self, sequences: Ints) -> Draws:
        """Where each global sequence index (from 0, unbounded) comes from. O(1) each, in whatever order they are asked for."""
        block, slot = np.divmod(np.asarray(sequences, np.int64), self.block_sequences)
        stage = np.searchsorted(self.stage_blocks, block, side="right") - 1
        ends = np.cumsum(self.counts, axis=1)
        place = permute(slot, self.block_sequences, key_of(self.seed, SLOT, block))
        bucket = (place[:, None] >= ends[stage]).sum(axis=1)
        before = self._read_before(stage, block)[np.arange(len(place)), bucket]
        in_block = place - (ends - self.counts)[stage, bucket]
        epoch, index = np.divmod(before + in_block, self.windows[bucket])
        window = permute(index, self.windows[bucket], key_of(self.seed, WINDOW, bucket, epoch))
        return Draws(bucket, epoch, window)

    def _read_before(self, stage: Ints, block: Ints) -> Ints:
        """Sequences of every bucket in all blocks before `block`: [sequences, buckets]."""
        lengths = np.diff(self.stage_blocks, append=self.stage_blocks[-1])  # the last stage has no end, and none needs it
        by_stage = np.cumsum(self.counts * lengths[:, None], axis=0) - self.counts * lengths[:, None]
        return by_stage[stage] + self.counts[stage] * (block - self.stage_blocks[stage])[:, None]


def plan_of(mixture: Mapping[str, Any], bucket_tokens: Sequence[int], sequence_tokens: int, seed: int) -> MixingPlan:
    """The plan of a `mixture.json` for sequences of `sequence_tokens`.

    Stages start at the same number of *tokens* whatever the sequence length, rounded up to a whole block.
    """
    block = int(mixture["block_sequences"])
    starts = [stage["start_sequence"] * mixture["sequence_tokens"] for stage in mixture["stages"]]
    return MixingPlan(
        block_sequences=block,
        stage_blocks=np.array([-(-start // (sequence_tokens * block)) for start in starts], np.int64),
        counts=np.array([stage["sequences_per_block"] for stage in mixture["stages"]], np.int64),
        windows=np.array([windows_in(tokens, sequence_tokens) for tokens in bucket_tokens], np.int64),
        seed=int(key_of(int(mixture["seed"]), seed) >> np.uint64(2)),
    )


def windows_in(tokens: int, sequence_tokens: int) -> int:
    """Windows of `sequence_tokens` inputs, each with a target; a bucket shorter than one has one, padded."""
    return max(1, (tokens - 1) // sequence_tokens)
