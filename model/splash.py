"""Splash attention, Pallas' kernel for TPUs: blocks that no query of theirs may see are never loaded."""

import jax
import jax.numpy as jnp
from jax import Array


def attend_by_splash(q: Array, k: Array, v: Array, segment_ids: Array, window: int | None, *, interpret: bool = False) -> Array:
    """As `model.attention.attend`; tokens and head_dim must be multiples of 128.

    Args:
        interpret: run the kernel as plain JAX, slowly, on a machine without a TPU; for tests.

    Raises:
        NotImplementedError, ValueError: the kernel has no form for these shapes.
    """
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    batch, tokens, heads, head_dim = q.shape
    group = heads // k.shape[2]
    square = (tokens, tokens)
    one = masks.CausalMask(square) if window is None else masks.LocalMask(square, (window - 1, 0), 0)
    kernel = kernels.make_splash_mqa_single_device(masks.MultiHeadMask([one] * group), interpret=interpret)

    def attend_row(q: Array, k: Array, v: Array, ids: Array) -> Array:
        """[kv_heads, group, tokens, head_dim] queries against [kv_heads, tokens, head_dim] keys and values of one sequence."""
        segments = kernels.SegmentIds(q=ids, kv=ids)
        mixed: Array = jax.vmap(lambda q, k, v: kernel(q, k, v, segment_ids=segments))(q, k, v)
        return mixed

    queries = (q * head_dim**-0.5).reshape(batch, tokens, -1, group, head_dim).transpose(0, 2, 3, 1, 4)
    keys, values = (jnp.transpose(a, (0, 2, 1, 3)) for a in (k, v))
    mixed = jax.vmap(attend_row)(queries, keys, values, segment_ids)
    return mixed.transpose(0, 3, 1, 2, 4).reshape(q.shape).astype(q.dtype)
