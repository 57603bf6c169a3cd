"""Exclusive self-attention (XSA): what a head says beyond the token's own value."""

import jax.numpy as jnp
from jax import Array

EXCLUSION_EPS = 1e-6  # keeps the projection finite where a value vanishes


def exclude_own_value(y: Array, v: Array) -> Array:
    """Remove from each head's output its component along the token's own value.

    Args:
        y: [batch, tokens, heads, head_dim].
        v: [batch, tokens, kv_heads, head_dim], shared by heads / kv_heads neighbouring heads.
    """
    batch, tokens, kv_heads, head_dim = v.shape
    grouped = y.reshape(batch, tokens, kv_heads, -1, head_dim).astype(jnp.float32)
    own = v[:, :, :, None, :].astype(jnp.float32)
    along = jnp.sum(grouped * own, axis=-1, keepdims=True) / (jnp.sum(own * own, axis=-1, keepdims=True) + EXCLUSION_EPS)
    return (grouped - along * own).reshape(y.shape).astype(y.dtype)
