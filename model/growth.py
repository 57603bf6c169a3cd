"""What a batch that grows on the way does to a run: by how much it has grown, and what that makes of the learning rate."""

import math

import jax.numpy as jnp
from jax import Array

from model.batches import batch_at, stages
from model.optimizer import Growth
from model.run import Run
from model.schedule import learning_rate


def batch_growth(run: Run, step: int) -> float:
    """By which factor the batch of update `step` exceeds the run's first."""
    return batch_at(run.loader, step - run.start_step) / run.loader.batch_sequences


def rate_share(run: Run, step: int) -> float:
    """The learning rate of update `step` as a share of the peak; above 1 where the batch has grown enough."""
    return learning_rate(run.schedule, step) * math.sqrt(batch_growth(run, step))


def growth_of(run: Run) -> Growth | None:
    """The growth of a run's batch over the optimizer's count; None for one that keeps its size."""
    if not run.loader.batch_stages:
        return None
    starts = jnp.asarray([run.start_step + start for start, _ in stages(run.loader)[1:]], jnp.int32)
    factors = jnp.asarray([size / run.loader.batch_sequences for _, size in stages(run.loader)], jnp.float32)

    def growth(count: Array) -> Array:
        return factors[jnp.searchsorted(starts, count, side="right")]

    return growth
