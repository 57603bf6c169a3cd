"""Muon for declared matrices, Adam for the rest; both from optax, both on one schedule."""

import math
from collections.abc import Callable
from typing import Any

import jax
import optax
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from model.config import OptimizerConfig, ScheduleConfig
from model.parameters import Leaf, Leaves
from model.schedule import learning_rate

NEWTON_SCHULZ_COEFFICIENTS = {
    "standard": (3.4445, -4.7750, 2.0315),  # one set for every step (Jordan 2024): singular values end in about 0.7..1.2
    "dion": (  # one set a step, tighter around 1 (Ahn et al. 2025, arXiv 2504.05295)
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
}


def make_optimizer(optimizer: OptimizerConfig, schedule: ScheduleConfig, leaves: Leaves) -> optax.GradientTransformation:
    """The update rule of a model.

    Args:
        schedule: its shares multiply each group's peak rate. The optimizer state counts updates from a run's start on
            through its branches, as the schedule does.
        leaves: `parameters.declare(config)`.

    Stacked matrices (layers, experts) are orthogonalised one by one: the matrix is the declared pair of axes.
    """
    return optax.multi_transform(
        {"muon": _muon(optimizer, schedule, leaves), "adam": _adam(optimizer, schedule)}, jax.tree.map(lambda leaf: leaf.group, leaves)
    )


def _adam(optimizer: OptimizerConfig, schedule: ScheduleConfig) -> optax.GradientTransformation:
    return optax.adamw(
        _scheduled(optimizer.adam_learning_rate, schedule),
        b1=optimizer.adam_beta1,
        b2=optimizer.adam_beta2,
        eps=optimizer.adam_eps,
        weight_decay=optimizer.adam_weight_decay,
    )


def _muon(optimizer: OptimizerConfig, schedule: ScheduleConfig, leaves: Leaves) -> optax.GradientTransformation:
    matrices = _for_muon(leaves, lambda rows, columns, leaf: MuonDimensionNumbers(reduction_axis=rows, output_axis=columns))
    factors = _for_muon(leaves, lambda rows, columns, leaf: _size_factor(leaf.shape[rows], leaf.shape[columns], optimizer.muon_update_rms))
    return optax.chain(
        scale_by_muon(
            ns_coeffs=NEWTON_SCHULZ_COEFFICIENTS[optimizer.muon_ns_coefficients],
            ns_steps=optimizer.muon_ns_steps,
            beta=optimizer.muon_momentum,
            eps=optimizer.muon_eps,
            nesterov=optimizer.muon_nesterov,
            weight_dimension_numbers=matrices,
        ),
        optax.stateless(lambda updates, params: jax.tree.map(lambda update, factor: update * factor, updates, factors)),
        optax.add_decayed_weights(optimizer.muon_weight_decay),
        optax.scale_by_learning_rate(_scheduled(optimizer.muon_learning_rate, schedule)),
    )


def _for_muon(leaves: Leaves, describe: Callable[[int, int, Leaf], Any]) -> Any:
    """describe(rows axis, columns axis, leaf) for Muon's leaves; MaskedNode, as multi_transform shows them, for the others."""

    def one(leaf: Leaf) -> Any:
        return describe(*leaf.matrix_axes, leaf) if leaf.group == "muon" and leaf.matrix_axes else optax.MaskedNode()

    return jax.tree.map(one, leaves)


def _size_factor(rows: int, columns: int, update_rms: float | None) -> float:
    """What an orthogonal matrix is multiplied by: to a root mean square of update_rms, or by Jordan's shape rule."""
    return math.sqrt(max(1.0, columns / rows)) if update_rms is None else update_rms * math.sqrt(max(rows, columns))


def _scheduled(peak: float, schedule: ScheduleConfig) -> optax.Schedule:
    return lambda count: peak * learning_rate(schedule, count)
