"""What a token may read of those just before it in its own document: shifted rows, with zeros where a document begins."""

import jax.numpy as jnp
from jax import Array


def earlier(x: Array, segment_ids: Array, back: int) -> Array:
    """Each token's entry of `back` tokens before it, zero where that token belongs to another document or doesn't exist.

    Args:
        x: [batch, tokens, ...].
        segment_ids: [batch, tokens]; a document's tokens are neighbours.
    """
    if back == 0:
        return x
    tokens = x.shape[1]
    shift = [(0, 0), (back, 0)] + [(0, 0)] * (x.ndim - 2)
    before = jnp.pad(x, shift)[:, :tokens]
    same = jnp.pad(segment_ids, ((0, 0), (back, 0)), constant_values=-2)[:, :tokens] == segment_ids  # -2: no document, no padding
    return jnp.where(same.reshape(*same.shape, *(1,) * (x.ndim - 2)), before, 0)


def offset_upper_half(keys: Array, segment_ids: Array) -> Array:
    """Partial key offset: the upper half of a key's channels becomes the previous token's; zero where a document begins.

    Args:
        keys: [batch, tokens, kv_heads, head_dim], not yet normalised: the norm must see the zeros.
    """
    half = keys.shape[-1] // 2
    return jnp.concatenate([keys[..., :half], earlier(keys[..., half:], segment_ids, 1)], axis=-1)


def convolve(x: Array, taps: Array, segment_ids: Array) -> Array:
    """Depthwise causal convolution inside documents.

    Args:
        x: [batch, tokens, channels].
        taps: [taps, channels] float32; tap j weighs the token j back. (1, 0, 0, ...) is the identity.

    Returns:
        [batch, tokens, channels] in x's dtype; the sum is float32.
    """
    mixed = sum(earlier(x, segment_ids, back).astype(jnp.float32) * taps[back] for back in range(taps.shape[0]))
    return jnp.asarray(mixed, x.dtype)
