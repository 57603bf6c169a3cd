"""Which documents a step read, and which steps read a document: the data order of a run, followed both ways.

The order is a pure function of (seed, step) made of keyed bijections, so it can be inverted: the steps of a document are
found in time that follows the document's length and the run's epochs, not the run's steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from infra.artifacts.artifact import Artifact
from model.batches import batch_at, sequences_before, stages
from model.config import LoaderConfig
from model.loader import MixtureLoader
from model.mixing import SLOT, WINDOW, MixingPlan, plan_of
from model.run import Run
from ops.cache import TokenCache, read_ledger
from ops.permutation import key_of, unpermute
from ops.trace.places import Place


@dataclass(frozen=True)
class Reading:
    """One time that a run reads tokens of a document.

    Attributes:
        step: in the run's own count, a branch's parent's steps included.
        row: of the step's batch.
        epoch: of the bucket, from 0.
        start, end: which of the document's tokens are inputs of that row; its end of text counts as one.
    """

    step: int
    row: int
    epoch: int
    start: int
    end: int


@dataclass(frozen=True)
class ReadDocument:
    """A document in a step's batch: which tokens of it (its end of text counts) are inputs of which row."""

    row: int
    source: str
    id: str
    folder: str
    epoch: int
    start: int
    end: int


def documents_of_step(store: Artifact, mixture: Artifact, run: Run, step: int) -> Iterator[ReadDocument]:
    """What a step's batch is made of, row by row.

    Args:
        step: in the run's own count: a branch begins where its parent ended.

    Raises:
        ValueError: the run makes no such step.
    """
    if not run.start_step <= step < run.end_step:
        raise ValueError(f"the run makes the steps {run.start_step} to {run.end_step - 1}; step {step} is none of them")
    loader = MixtureLoader(store, mixture, run.loader)
    draws = loader.draws(step - run.start_step)
    for row, (bucket, epoch, window) in enumerate(zip(draws.bucket.tolist(), draws.epoch.tolist(), draws.window.tolist(), strict=True)):
        folder = loader.folders[bucket]
        cache = TokenCache.open(store, folder)
        start = window * run.loader.sequence_tokens
        end = min(start + run.loader.sequence_tokens, len(cache.tokens))
        indices = list(cache.documents_at(start, end))
        for index, (source, id) in zip(indices, cache.names_of(indices), strict=True):
            first, last = int(cache.offsets[index]), int(cache.offsets[index + 1])
            yield ReadDocument(row, source, id, folder, epoch, max(start, first) - first, min(end, last) - first)


def readings_of(place: Place, store: Artifact, mixture: Artifact, run: Run) -> list[Reading]:
    """Every time that a run reads tokens of the document at a place of the store, by step and row.

    Empty for held-out places, for buckets that the mixture leaves out, and for the few tokens behind a bucket's last window.
    """
    mixed = mixture.read_json("mixture.json")
    folders = [bucket["folder"] for bucket in mixed["buckets"]]
    if place.folder not in folders:
        return []
    sizes = {bucket.folder: bucket.tokens for bucket in read_ledger(store).buckets}
    width, bucket = run.loader.sequence_tokens, folders.index(place.folder)
    plan = plan_of(mixed, [sizes[folder] for folder in folders], width, run.loader.seed)
    total = sequences_before(run.loader, run.end_step - run.start_step)
    found = []
    for window in range(place.start // width, min(-(-place.end // width), int(plan.windows[bucket]))):
        start, end = max(window * width, place.start) - place.start, min((window + 1) * width, place.end) - place.start
        for epoch, sequence in _sequences_of(plan, bucket, window, total):
            step = step_of(run.loader, sequence)
            row = sequence - sequences_before(run.loader, step)
            found.append(Reading(run.start_step + step, row, epoch, start, end))
    return sorted(found, key=lambda reading: (reading.step, reading.row, reading.start))


def step_of(loader: LoaderConfig, sequence: int) -> int:
    """The step (from 0) whose batch holds the sequence: the inverse of `sequences_before`."""
    start, _ = max((stage for stage in stages(loader) if sequences_before(loader, stage[0]) <= sequence), key=lambda stage: stage[0])
    return start + (sequence - sequences_before(loader, start)) // batch_at(loader, start)


def _sequences_of(plan: MixingPlan, bucket: int, window: int, total: int) -> Iterator[tuple[int, int]]:
    """(epoch, global sequence) of every time that a window is read in the first `total` sequences; at most one an epoch."""
    windows, epoch = int(plan.windows[bucket]), 0
    blocks = -(-total // plan.block_sequences)
    while epoch * windows < _read_in(plan, bucket, blocks):
        index = int(unpermute(np.array([window]), windows, key_of(plan.seed, WINDOW, bucket, epoch))[0])
        sequence = _sequence_at(plan, bucket, epoch * windows + index)
        if sequence is not None and sequence < total:
            yield epoch, sequence
        epoch += 1


def _read_in(plan: MixingPlan, bucket: int, blocks: int) -> int:
    """Sequences of a bucket in the first so many blocks."""
    ends = [*plan.stage_blocks[1:].tolist(), blocks]
    spans = zip(plan.stage_blocks.tolist(), ends, plan.counts[:, bucket].tolist(), strict=True)
    return sum(max(0, min(end, blocks) - start) * count for start, end, count in spans)


def _sequence_at(plan: MixingPlan, bucket: int, number: int) -> int | None:
    """The global sequence that is a bucket's `number`-th, from 0; None if the bucket is never read so often."""
    ends = [*plan.stage_blocks[1:].tolist(), None]
    for stage, (first, end) in enumerate(zip(plan.stage_blocks.tolist(), ends, strict=True)):
        count = int(plan.counts[stage, bucket])
        if count and (end is None or number < (end - first) * count):
            block = first + number // count
            place = int(plan.counts[stage, :bucket].sum()) + number % count
            slot = unpermute(np.array([place]), plan.block_sequences, key_of(plan.seed, SLOT, block))
            return int(block) * plan.block_sequences + int(slot[0])
        number -= (end - first) * count if end is not None else 0
    return None
