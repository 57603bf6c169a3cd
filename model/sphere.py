"""Steps on a sphere: every matrix keeps the Frobenius norm it started with, and a rate is a relative step.

The norm of each matrix is train state, taken once at the start: it can't wander with rounding, and a step that breaks it, as a
norm that was lowered wrongly over a mesh once did, shows at run time.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from model.leaf import Leaf, Leaves

TINIEST = 1e-30  # under the norm of any direction worth following; a zero gradient moves nothing


class SphereState(NamedTuple):
    """made: updates so far, int32. radius: norm of every matrix at the start, with axes of size 1 in the matrix' place."""

    made: Array
    radius: Any


def radius_of(x: Array, matrix_axes: tuple[int, int]) -> Array:
    """Frobenius norm of every matrix in an array, its axes kept at size 1; float32.

    Never over the stacking axes: one norm over layers or experts would let each of them drift by percents a step.
    """
    wide = x.astype(jnp.float32)
    norms: Array = jnp.sqrt(jnp.sum(wide * wide, axis=matrix_axes, keepdims=True))
    return norms


def step_on_sphere(leaves: Leaves, rate: optax.Schedule) -> optax.GradientTransformation:
    """W <- R Y/|Y| with Y = W - rate R U/|U|, for each declared matrix W of radius R and direction U; any scale of U cancels.

    Args:
        leaves: the declared leaves, MaskedNode where another optimizer moves them.
        rate: relative step by number of updates made.

    Source: optimisation at constant weight norm, arXiv 2603.28743.
    """

    def init(params: Any) -> SphereState:
        return SphereState(jnp.zeros((), jnp.int32), jax.tree.map(lambda leaf, w: radius_of(w, leaf.matrix_axes), leaves, params))

    def update(directions: Any, state: SphereState, params: Any = None) -> tuple[Any, SphereState]:
        if params is None:
            raise ValueError("a step on the sphere needs the parameters it starts from; pass them to update")
        eta = rate(state.made)

        def moved(leaf: Leaf, u: Array, w: Array, radius: Array) -> Array:
            assert leaf.matrix_axes is not None  # the leaf's own rule for all groups that come here
            y = w - eta * radius * u / jnp.maximum(radius_of(u, leaf.matrix_axes), TINIEST)
            step: Array = y * (radius / radius_of(y, leaf.matrix_axes)) - w
            return step

        return jax.tree.map(moved, leaves, directions, params, state.radius), SphereState(state.made + 1, state.radius)

    return optax.GradientTransformation(init, update)


def radius_drift(optimizer_state: Any, params: Any, leaves: Leaves) -> Array:
    """Largest relative departure of a matrix from its radius, over everything that moves on a sphere; 0 if nothing does.

    A matrix of zero radius, which has no direction to step from, gives inf or nan.
    """
    nodes = jax.tree.leaves(optimizer_state, is_leaf=lambda node: isinstance(node, SphereState))
    drifts = [_drift(node.radius, params, leaves) for node in nodes if isinstance(node, SphereState)]
    return jnp.max(jnp.stack(drifts)) if drifts else jnp.zeros((), jnp.float32)


def _drift(radius: Any, params: Any, leaves: Leaves) -> Array:
    def one(expected: Any, w: Any, leaf: Leaf) -> Array:
        if isinstance(expected, optax.MaskedNode) or leaf.matrix_axes is None:
            return jnp.zeros((), jnp.float32)
        return jnp.max(jnp.abs(radius_of(w, leaf.matrix_axes) / expected - 1))

    found = jax.tree.map(one, radius, params, leaves, is_leaf=lambda node: isinstance(node, optax.MaskedNode))
    return jnp.max(jnp.stack(jax.tree.leaves(found)))
