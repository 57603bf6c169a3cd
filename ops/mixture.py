"""store -> mixture: how many sequences of every block come from which bucket."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.cache import Bucket, read_ledger
from ops.config import MixtureConfig, MixtureStage

Weights = npt.NDArray[np.float64]


class MixtureError(ValueError):
    """The weights asked for can't be had from this store."""


class MixtureStats(Stats):
    buckets: int
    stages: int
    training_tokens: int
    available_tokens: int
    epochs: dict[str, float]  # by folder, over the whole run
    max_epochs: float
    left_out: dict[str, float]  # natural weight by folder, of the buckets below min_bucket_weight
    domain_shares: dict[str, float]  # of the first stage's sequences


@program(version="1")
def mix(config: MixtureConfig, store: Artifact, out: Writer) -> MixtureStats:
    """Turn domain weights into whole numbers of sequences per block and bucket.

    Args:
        store: its train buckets are mixed.
        out: gets `mixture.json`: `buckets` [{folder, domain, quality, tokens, weight, epochs}], `block_sequences`,
            `sequence_tokens` (the unit of `start_sequence`), `seed`, `stages` [{start_sequence, weights, sequences_per_block}],
            the last two in the order of `buckets`.

    Returns:
        Epochs per bucket for a run of `training_tokens`, and what was left out.

    Raises:
        MixtureError: a domain is unknown or has no tokens, a non-zero weight rounds to zero, or the cap can't be kept.

    A bucket's weight is its domain's, shared by (tokens x quality multiplier). No weight exceeds what `epoch_cap` passes over
    the bucket can feed; the excess goes to the other buckets in proportion to theirs.
    """
    buckets = read_ledger(store).split("train")
    weights = [stage_weights(buckets, stage, config) for stage in config.stages]
    used = [index for index in range(len(buckets)) if any(stage[index] > 0 for stage in weights)]
    kept = [buckets[index] for index in used]
    counts = [_block_counts(stage[used], kept, config.block_sequences) for stage in weights]
    epochs = epochs_of(kept, counts, config)
    out.write_json("mixture.json", _document(config, kept, counts, epochs))
    return MixtureStats(
        buckets=len(kept),
        stages=len(config.stages),
        training_tokens=config.training_tokens,
        available_tokens=sum(bucket.tokens for bucket in kept),
        epochs={bucket.folder: float(count) for bucket, count in zip(kept, epochs, strict=True)},
        max_epochs=float(epochs.max()),
        left_out={buckets[i].folder: float(_natural(buckets)[i]) for i in range(len(buckets)) if i not in used},
        domain_shares=_domain_shares(kept, counts[0]),
    )


def stage_weights(buckets: Sequence[Bucket], stage: MixtureStage, config: MixtureConfig) -> Weights:
    """Weights of the buckets in one stage: float64 [buckets], summing to 1."""
    amounts = _natural(buckets) * [stage.quality_multipliers[int(bucket.quality)] for bucket in buckets]
    if stage.domain_weights:
        amounts = _share_domains(buckets, amounts, stage)
    if not (amounts >= 0).all() or amounts.sum() <= 0:
        raise MixtureError(f"stage at sequence {stage.start_sequence}: weights must not be negative, nor all zero")
    weights = amounts / amounts.sum()
    weights = np.where(weights < config.min_bucket_weight, 0.0, weights)
    return cap_weights(weights / weights.sum(), _ceilings(buckets, config))


def cap_weights(weights: Weights, ceilings: Weights) -> Weights:
    """Lower every weight to its ceiling and hand the excess to the others in proportion, until none is above.

    Raises:
        MixtureError: all buckets that have a weight together can't feed the run.
    """
    capped = np.zeros(len(weights), bool)
    while True:
        free = max(0.0, 1.0 - ceilings[capped].sum())
        rest = np.where(capped, 0.0, weights)
        if rest.sum() <= 0 and free > 1e-12:
            raise MixtureError(
                f"the buckets can feed only {1 - free:.3f} of training_tokens within epoch_cap; "
                "raise epoch_cap, lower training_tokens or give weight to more buckets"
            )
        level = np.where(capped, ceilings, rest / (rest.sum() or 1.0) * free)
        above = ~capped & (level > ceilings)
        if not above.any():
            return level
        capped |= above


def largest_remainder(weights: Weights, total: int) -> npt.NDArray[np.int64]:
    """Whole numbers that sum to `total`, each within one of `weights * total`; the largest fractions are rounded up.

    Equal fractions are served in order. Source: Hamilton's apportionment.
    """
    exact = weights / weights.sum() * total
    counts = np.floor(exact).astype(np.int64)
    short = total - int(counts.sum())
    counts[np.argsort(-(exact - counts), kind="stable")[:short]] += 1
    return counts


def epochs_of(buckets: Sequence[Bucket], counts: Sequence[npt.NDArray[np.int64]], config: MixtureConfig) -> Weights:
    """Passes over each bucket in a run of `training_tokens`: float64 [buckets]."""
    sequences = config.training_tokens / config.sequence_tokens
    starts = [min(float(stage.start_sequence), sequences) for stage in config.stages] + [sequences]
    read = np.zeros(len(buckets))
    for start, end, count in zip(starts, starts[1:], counts, strict=False):
        read += (end - start) * config.sequence_tokens * count / config.block_sequences
    return read / [bucket.tokens for bucket in buckets]


def _natural(buckets: Sequence[Bucket]) -> Weights:
    tokens = np.array([bucket.tokens for bucket in buckets], np.float64)
    return tokens / tokens.sum()


def _share_domains(buckets: Sequence[Bucket], amounts: Weights, stage: MixtureStage) -> Weights:
    domains = np.array([bucket.domain for bucket in buckets])
    shared = np.zeros(len(buckets))
    for domain, weight in stage.domain_weights.items():
        mine = domains == domain
        if weight and not amounts[mine].sum() > 0:
            raise MixtureError(f"domain {domain!r} has a weight but no train tokens; the store has {sorted(set(domains.tolist()))}")
        if weight:
            shared[mine] = weight * amounts[mine] / amounts[mine].sum()
    return shared


def _ceilings(buckets: Sequence[Bucket], config: MixtureConfig) -> Weights:
    if config.epoch_cap is None:
        return np.ones(len(buckets))
    return np.minimum(1.0, np.array([bucket.tokens for bucket in buckets]) * config.epoch_cap / config.training_tokens)


def _block_counts(weights: Weights, buckets: Sequence[Bucket], block_sequences: int) -> npt.NDArray[np.int64]:
    counts = largest_remainder(weights, block_sequences)
    lost = [
        f"{bucket.folder} ({weight:.2g})"
        for bucket, weight, count in zip(buckets, weights, counts, strict=True)
        if weight > 0 and not count
    ]
    if lost:
        raise MixtureError(
            f"{', '.join(lost)} would get no sequence in a block of {block_sequences}; "
            "raise block_sequences, or min_bucket_weight to leave such buckets out on purpose"
        )
    return counts


def _domain_shares(buckets: Sequence[Bucket], counts: npt.NDArray[np.int64]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for bucket, count in zip(buckets, counts.tolist(), strict=True):
        shares[bucket.domain] = shares.get(bucket.domain, 0.0) + count / int(counts.sum())
    return shares


def _document(
    config: MixtureConfig, buckets: Sequence[Bucket], counts: Sequence[npt.NDArray[np.int64]], epochs: Weights
) -> dict[str, object]:
    """The exact weights, as whole numbers over the block: what a run will read, not what was wished for."""
    shares = [(count / config.block_sequences).tolist() for count in counts]
    return {
        "block_sequences": config.block_sequences,
        "sequence_tokens": config.sequence_tokens,
        "seed": config.seed,
        "buckets": [
            bucket.model_dump(include={"folder", "domain", "quality", "tokens"}) | {"weight": weight, "epochs": epoch}
            for bucket, weight, epoch in zip(buckets, shares[0], epochs.tolist(), strict=True)
        ],
        "stages": [
            {"start_sequence": stage.start_sequence, "weights": weights, "sequences_per_block": count.tolist()}
            for stage, weights, count in zip(config.stages, shares, counts, strict=True)
        ],
    }
