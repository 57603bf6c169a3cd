"""Root-mean-square norms, with the optional low-rank gate behind them."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array


def rms(x: Array, eps: float) -> Array:
    """Divide by the root mean square over the last axis; statistics in float32, result in float32.

    Source: Zhang & Sennrich 2019 (arXiv 1910.07467).
    """
    wide = x.astype(jnp.float32)
    return wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)


def norm(x: Array, weights: Mapping[str, Array], eps: float) -> Array:
    """RMSNorm with a gain, then x * sigmoid(silu(x gate_down) gate_up) where a gate is declared.

    Args:
        x: [..., width].
        weights: `gain` [width]; optionally `gate_down` [width, rank] and `gate_up` [rank, width].

    Returns:
        [..., width] in x's dtype.
    """
    scaled = (rms(x, eps) * weights["gain"]).astype(x.dtype)
    if "gate_down" not in weights:
        return scaled
    squeezed = jax.nn.silu(scaled @ weights["gate_down"].astype(x.dtype))
    return scaled * jax.nn.sigmoid(squeezed @ weights["gate_up"].astype(x.dtype))
