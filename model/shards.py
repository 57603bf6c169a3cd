"""Reductions over the shards of a batch, which are the identity where a batch is whole."""

import jax
from jax import Array


def total(x: Array, data_axis: str | None) -> Array:
    """Sum over all shards."""
    return x if data_axis is None else jax.lax.psum(x, data_axis)


def lowest(x: Array, data_axis: str | None) -> Array:
    """Minimum over all shards."""
    return x if data_axis is None else jax.lax.pmin(x, data_axis)


def highest(x: Array, data_axis: str | None) -> Array:
    """Maximum over all shards."""
    return x if data_axis is None else jax.lax.pmax(x, data_axis)
