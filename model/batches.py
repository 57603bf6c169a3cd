"""How many sequences each step reads: piecewise constant, counted in exact integers. The loader and every token counter use it."""

import bisect

from model.config import BranchConfig, LoaderConfig


def stages(loader: LoaderConfig) -> list[tuple[int, int]]:
    """(first step, sequences a step) of each stage, from step 0 of the run on."""
    return [(0, loader.batch_sequences), *((stage.start_step, stage.batch_sequences) for stage in loader.batch_stages)]


def batch_at(loader: LoaderConfig, step: int) -> int:
    """Sequences that step (from 0) reads."""
    found = stages(loader)
    return found[bisect.bisect_right([start for start, _ in found], step) - 1][1]


def sequences_before(loader: LoaderConfig, step: int) -> int:
    """Sequences that the steps before `step` read: where its batch begins in the run's order of data."""
    found = stages(loader)
    ends = [start for start, _ in found[1:]] + [step]
    return sum((min(end, step) - start) * size for (start, size), end in zip(found, ends, strict=True) if start < step)


def tokens_before(loader: LoaderConfig, step: int) -> int:
    """Tokens that the steps before `step` read."""
    return sequences_before(loader, step) * loader.sequence_tokens


def steps_for(loader: LoaderConfig, tokens: int) -> int:
    """Fewest steps that read `tokens` or more: the inverse of `tokens_before`."""
    wanted, found = -(-tokens // loader.sequence_tokens), stages(loader)
    start, size = max((stage for stage in found if sequences_before(loader, stage[0]) < max(wanted, 1)), key=lambda stage: stage[0])
    return start + -(-(max(wanted, 0) - sequences_before(loader, start)) // size)


def branch_loader(config: BranchConfig, parent: LoaderConfig, step: int) -> LoaderConfig:
    """What a branch reads that leaves its parent where update `step` (of the parent's own) would have been the next.

    Raises:
        ValueError: the tokens of a step don't divide by the new sequence length.
    """
    sequence_tokens = config.sequence_tokens or parent.sequence_tokens
    tokens = batch_at(parent, step) * parent.sequence_tokens
    if config.batch_sequences is None and tokens % sequence_tokens:
        raise ValueError(f"sequence_tokens = {sequence_tokens} doesn't divide the parent's {tokens} tokens per step; set batch_sequences")
    return parent.model_copy(
        update={
            "sequence_tokens": sequence_tokens,
            "batch_sequences": config.batch_sequences or tokens // sequence_tokens,
            "batch_stages": (),
            "seed": config.loader_seed,
        }
    )
