"""Learning rates over steps. A schedule is a polyline: its knots are data, evaluating it is interpolation."""

import math
from collections.abc import Sequence
from typing import Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from model.config import ScheduleConfig


def knots(schedule: ScheduleConfig) -> list[tuple[int, float]]:
    """The corners of a schedule as (step, share of the peak), by step; constant before the first and after the last.

    Warm-up climbs from 0 at step -1, so the first update already moves. The last scheduled step has exactly the floor.
    """
    last = schedule.start_step + schedule.schedule_steps - 1
    floor = (last, schedule.floor_share)
    if schedule.kind == "cooldown":
        return _distinct([(schedule.start_step, schedule.start_share), floor])
    rise = [(-1, 0.0), (schedule.warmup_steps - 1, 1.0)] if schedule.warmup_steps else [(0, 1.0)]
    plateau_end = [(last - schedule.decay_steps, 1.0)] if schedule.kind == "wsd" else []
    return _distinct([*rise, *plateau_end, floor])


@overload
def learning_rate(schedule: ScheduleConfig, step: int) -> float: ...
@overload
def learning_rate(schedule: ScheduleConfig, step: Array) -> Array: ...
def learning_rate(schedule: ScheduleConfig, step: int | Array) -> float | Array:
    """The learning rate of the update that turns the state after `step` updates into the next, as a share of the peak.

    A Python step gives a float (computed in float64), a traced one a float32 array.
    """
    steps, shares = zip(*knots(schedule), strict=True)
    if isinstance(step, jax.Array):
        where = _bent(schedule, step.astype(jnp.float32), steps)
        return jnp.interp(where, jnp.asarray(steps, jnp.float32), jnp.asarray(shares, jnp.float32))
    return float(np.interp(_bent(schedule, step, steps), steps, shares))


@overload
def _bent(schedule: ScheduleConfig, step: int, steps: Sequence[int]) -> float: ...
@overload
def _bent(schedule: ScheduleConfig, step: Array, steps: Sequence[int]) -> Array: ...
def _bent(schedule: ScheduleConfig, step: int | Array, steps: Sequence[int]) -> float | Array:
    """Where on the straight fall to the floor a step stands: a fall as 1 - sqrt(t) is the straight one at sqrt(t)."""
    if schedule.decay_shape == "linear" or len(steps) < 2:
        return step
    start, length = steps[-2], steps[-1] - steps[-2]
    if isinstance(step, jax.Array):
        return jnp.where(step > start, start + length * jnp.sqrt(jnp.clip((step - start) / length, 0, 1)), step)
    return start + length * math.sqrt(min((step - start) / length, 1.0)) if step > start else step


def branch_schedule(
    parent: ScheduleConfig,
    branch_step: int,
    cooldown_steps: int,
    *,
    floor_share: float | None = None,
    decay_shape: Literal["linear", "one_minus_sqrt"] = "linear",
    batch_factor: float = 1.0,
) -> ScheduleConfig:
    """A cooldown that leaves `parent` after `branch_step` updates, without a jump and without a warm-up.

    Its first update uses exactly the share that the parent's next update would have used, its last one the floor
    (the parent's unless given). Steps go on counting where the parent stood.

    Args:
        batch_factor: what the parent's share is multiplied with at that step because its batch has grown.
    """
    return ScheduleConfig(
        kind="cooldown",
        schedule_steps=cooldown_steps,
        start_step=branch_step,
        start_share=learning_rate(parent, branch_step) * batch_factor,
        decay_shape=decay_shape,
        floor_share=parent.floor_share * batch_factor if floor_share is None else floor_share,
    )


def _distinct(corners: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return [corner for corner, after in zip(corners, [*corners[1:], None], strict=True) if after is None or corner[0] != after[0]]
