"""Rotary positions."""

import jax.numpy as jnp
from jax import Array


def angles(tokens: int, rotated_channels: int, theta: float) -> Array:
    """Rotation angles [tokens, rotated_channels / 2] in radians, float32; pair i turns by theta^(-2i / rotated_channels) a token."""
    frequencies = theta ** (-jnp.arange(0, rotated_channels, 2, dtype=jnp.float32) / rotated_channels)
    return jnp.arange(tokens, dtype=jnp.float32)[:, None] * frequencies


def rotate(x: Array, turns: Array) -> Array:
    """Turn the first 2 * turns.shape[-1] channels of each head by position; the others carry none.

    Args:
        x: [batch, tokens, heads, head_dim].
        turns: [tokens, pairs]; channel i is paired with channel i + pairs.

    Positions count from the row's start, not the document's: only differences matter, and those are equal.
    Source: Su et al. 2021 (arXiv 2104.09864).
    """
    pairs = turns.shape[-1]
    if pairs == 0:
        return x
    cos, sin = jnp.cos(turns)[:, None, :], jnp.sin(turns)[:, None, :]
    wide = x[..., : 2 * pairs].astype(jnp.float32)
    first, second = wide[..., :pairs], wide[..., pairs:]
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return jnp.concatenate([turned.astype(x.dtype), x[..., 2 * pairs :]], axis=-1)
