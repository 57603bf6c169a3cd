"""Rotary positions."""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

Pairing = Literal["halves", "interleaved"]


def angles(tokens: int, rotated_channels: int, theta: float) -> Array:
    """Rotation angles [tokens, rotated_channels / 2] in radians, float32; pair i turns by theta^(-2i / rotated_channels) a token."""
    return jnp.arange(tokens, dtype=jnp.float32)[:, None] * frequencies(rotated_channels, theta)


def frequencies(rotated_channels: int, theta: float) -> Array:
    """Radians per token of each pair, [rotated_channels / 2] float32."""
    return theta ** (-jnp.arange(0, rotated_channels, 2, dtype=jnp.float32) / rotated_channels)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rotate(x: Array, turns: Array, pairing: Pairing = "halves") -> Array:
    """Turn the first 2 * pairs channels of each head by position; the others carry none.

    Args:
        x: [batch, tokens, heads, head_dim].
        turns: [tokens, pairs], or [batch, tokens, pairs] where rows stand at different positions.
        pairing: which channel pair i is: (i, i + pairs), or (2i, 2i + 1). Weights of one don't fit the other.

    Positions count from the row's start, not the document's: only differences matter, and those are equal. Angles have no gradient;
    that of x is the same turn backwards.
    Source: Su et al. 2021 (arXiv 2104.09864).
    """
    return _turned(x, turns, pairing)


def _turned(x: Array, turns: Array, pairing: Pairing) -> Array:
    pairs = turns.shape[-1]
    if pairs == 0:
        return x
    cos, sin = jnp.cos(turns)[..., None, :], jnp.sin(turns)[..., None, :]
    wide = x[..., : 2 * pairs].astype(jnp.float32)
    first, second = (wide[..., :pairs], wide[..., pairs:]) if pairing == "halves" else (wide[..., ::2], wide[..., 1::2])
    both = first * cos - second * sin, second * cos + first * sin
    turned = jnp.concatenate(both, axis=-1) if pairing == "halves" else jnp.stack(both, axis=-1).reshape(wide.shape)
    return jnp.concatenate([turned.astype(x.dtype), x[..., 2 * pairs :]], axis=-1)


def _turn(x: Array, turns: Array, pairing: Pairing) -> tuple[Array, Array]:
    return _turned(x, turns, pairing), turns


def _turn_back(pairing: Pairing, turns: Array, pull: Array) -> tuple[Array, None]:
    return _turned(pull, -turns, pairing), None


rotate.defvjp(_turn, _turn_back)
