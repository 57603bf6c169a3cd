"""One update rule for each declared group of leaves: Muon, perhaps on a sphere, for matrices; Adam, perhaps on a sphere, for the
head; Adam for the rest. Built from optax's transforms, on one schedule."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import optax
from jax import Array

from model.config import OptimizerConfig, ScheduleConfig
from model.leaf import Group, Leaf, Leaves
from model.newton_schulz import COEFFICIENTS
from model.orthogonal import orthogonalized
from model.rates import BETA2_BOUNDS, clipped_beta2
from model.schedule import learning_rate
from model.sphere import step_on_sphere


class Growth(Protocol):
    """By which factor a step's batch exceeds the run's first, for a number of updates made."""

    def __call__(self, count: Array) -> Array: ...


Placing = Callable[[Leaf, Array], Array]
"""Says where the devices of a mesh keep an array of matrices while each matrix is worked on as a whole."""


def make_optimizer(
    optimizer: OptimizerConfig, schedule: ScheduleConfig, leaves: Leaves, growth: Growth | None = None, placing: Placing | None = None
) -> optax.GradientTransformation:
    """The update rule of a model.

    Args:
        schedule: its shares multiply each group's peak rate. The optimizer state counts updates from a run's start on
            through its branches, as the schedule does.
        leaves: `parameters.declare(config)`.
        growth: of the batch, where it grows on the way.
        placing: over a mesh, how matrices are spread for Newton-Schulz.

    Stacked matrices (layers, experts) are treated one by one: the matrix is the declared pair of axes.
    """
    rates = _Rates(schedule, growth)
    rules: dict[Group, optax.GradientTransformation] = {
        "matrix": _matrix_rule(optimizer, rates, _of_group(leaves, "matrix"), placing or _as_they_lie),
        "head": _head_rule(optimizer, rates, growth, _of_group(leaves, "head")),
        "adam": optax.chain(
            _adam_direction(optimizer, growth),
            optax.add_decayed_weights(optimizer.adam_weight_decay),
            optax.scale_by_learning_rate(rates.peaking_at(optimizer.adam_learning_rate)),
        ),
    }
    return optax.multi_transform(rules, jax.tree.map(lambda leaf: leaf.group, leaves))


class _Rates:
    """Rates over updates: a peak, times the schedule's share, times the square root of the batch's growth."""

    def __init__(self, schedule: ScheduleConfig, growth: Growth | None) -> None:
        self._schedule, self._growth = schedule, growth

    def peaking_at(self, peak: float) -> Callable[[Array], Array]:
        def rate(count: Array) -> Array:
            share = peak * learning_rate(self._schedule, count)
            return share if self._growth is None else share * jnp.sqrt(self._growth(count))

        return rate


def _matrix_rule(optimizer: OptimizerConfig, rates: _Rates, leaves: Leaves, placing: Placing) -> optax.GradientTransformation:
    coefficients = COEFFICIENTS[optimizer.muon_ns_coefficients][: optimizer.muon_ns_steps]
    rate = rates.peaking_at(optimizer.muon_learning_rate)

    def turned(leaf: Leaf, momentum: Array) -> Array:
        assert leaf.matrix_axes is not None  # the leaf's own rule for this group
        return orthogonalized(
            placing(leaf, momentum), leaf.matrix_axes, coefficients, eps=optimizer.muon_eps, dtype=optimizer.muon_ns_dtype
        )

    direction = optax.chain(
        optax.trace(optimizer.muon_momentum, nesterov=optimizer.muon_nesterov),
        optax.stateless(lambda momenta, params: jax.tree.map(turned, leaves, momenta)),
    )
    if optimizer.matrix_rule == "muon_sphere":
        return optax.chain(direction, step_on_sphere(leaves, rate))
    factors = jax.tree.map(lambda leaf: _size_factor(leaf, optimizer.muon_update_rms), leaves)
    return optax.chain(
        direction,
        optax.stateless(lambda updates, params: jax.tree.map(lambda factor, update: update * factor, factors, updates)),
        optax.add_decayed_weights(optimizer.muon_weight_decay),
        optax.scale_by_learning_rate(rate),
    )


def _as_they_lie(leaf: Leaf, array: Array) -> Array:
    return array


def _head_rule(optimizer: OptimizerConfig, rates: _Rates, growth: Growth | None, leaves: Leaves) -> optax.GradientTransformation:
    direction, rate = _adam_direction(optimizer, growth), rates.peaking_at(optimizer.peak_head_learning_rate)
    if optimizer.head_rule == "adam_sphere":
        return optax.chain(direction, step_on_sphere(leaves, rate))
    return optax.chain(direction, optax.add_decayed_weights(optimizer.adam_weight_decay), optax.scale_by_learning_rate(rate))


def _adam_direction(optimizer: OptimizerConfig, growth: Growth | None) -> optax.GradientTransformation:
    """optax's Adam; where the batch grows, beta2 forgets in tokens as before and eps falls with the root of the growth."""
    plain = optax.scale_by_adam(b1=optimizer.adam_beta1, b2=optimizer.adam_beta2, eps=optimizer.adam_eps)
    if growth is None:
        return plain

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        factor = growth(state.count)
        beta2 = jnp.where(factor == 1, optimizer.adam_beta2, jnp.clip(optimizer.adam_beta2**factor, *BETA2_BOUNDS))
        current = optax.scale_by_adam(b1=optimizer.adam_beta1, b2=beta2, eps=optimizer.adam_eps / jnp.sqrt(factor))
        moved: tuple[Any, Any] = current.update(updates, state, params)
        return moved

    return optax.GradientTransformation(plain.init, update)


def after_growth(optimizer: OptimizerConfig, factor: float) -> OptimizerConfig:
    """What a run whose batch has grown by `factor` goes on with; its rates are the schedule's business."""
    if factor == 1:
        return optimizer
    beta2 = clipped_beta2(optimizer.adam_beta2**factor)
    return optimizer.model_copy(update={"adam_beta2": beta2, "adam_eps": optimizer.adam_eps / math.sqrt(factor)})


def _of_group(leaves: Leaves, group: Group) -> Any:
    """The leaves of a group; MaskedNode, as multi_transform shows them, for the others."""
    return jax.tree.map(lambda leaf: leaf if leaf.group == group else optax.MaskedNode(), leaves)


def _size_factor(leaf: Leaf, update_rms: float | None) -> float:
    """What an orthogonal matrix is multiplied by: to a root mean square of update_rms, or by Jordan's shape rule."""
    assert leaf.matrix_axes is not None  # the leaf's own rule for this group
    rows, columns = (leaf.shape[axis] for axis in leaf.matrix_axes)
    return math.sqrt(max(1.0, columns / rows)) if update_rms is None else update_rms * math.sqrt(max(rows, columns))
