"""Attention for CPUs: blocks of queries against the keys they may see, half the work of the square and a window's share of that.

The gradient is written out: it reads the probabilities that the forward pass made, adds to keys and values where they lie, and
takes the sum behind a softmax's derivative over a head's channels instead of over its keys.
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Kept(NamedTuple):
    """What the backward pass reads. Heads lead, and queries that share a key lie in one row, so that each product is one batched matmul.

    Attributes:
        queries, mixed: by block, [batch, kv_heads, group x queries, head_dim].
        keys, values: [batch, kv_heads, tokens, head_dim].
        shares: by block of queries, the softmax over the keys it sees [batch, kv_heads, group x queries, keys].
        segment_ids: [batch, tokens].
    """

    queries: tuple[Array, ...]
    mixed: tuple[Array, ...]
    keys: Array
    values: Array
    shares: tuple[Array, ...]
    segment_ids: Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def attend_by_triangle(q: Array, k: Array, v: Array, segment_ids: Array, window: int | None, block_tokens: int) -> Array:
    """As `attention.attend`, `block_tokens` queries at one time."""
    return _forward(q, k, v, segment_ids, window, block_tokens)[0]


def visible(query_ids: Array, key_ids: Array, first_query: int, first_key: int, window: int | None) -> Array:
    """Which keys each query sees: [batch, queries, keys] booleans. A query always sees itself, so no row is empty."""
    query = first_query + jnp.arange(query_ids.shape[1])[:, None]
    key = first_key + jnp.arange(key_ids.shape[1])[None, :]
    reachable = key <= query
    if window is not None:
        reachable &= query - key < window
    return reachable & (query_ids[:, :, None] == key_ids[:, None, :])


def _forward(q: Array, k: Array, v: Array, segment_ids: Array, window: int | None, block_tokens: int) -> tuple[Array, Kept]:
    tokens, heads, head_dim = q.shape[1:]
    group = heads // k.shape[2]
    keys, values = (a.transpose(0, 2, 1, 3) for a in (k, v))
    queries, mixed, shares = [], [], []
    for start, stop, first in _blocks(tokens, window, block_tokens):
        own = _by_key_head(q[:, start:stop], group)
        scores = jnp.einsum("bmqh,bmkh->bmqk", own, keys[:, :, first:stop], preferred_element_type=jnp.float32)
        seen = jnp.tile(visible(segment_ids[:, start:stop], segment_ids[:, first:stop], start, first, window), (1, group, 1))
        share = jax.nn.softmax(jnp.where(seen[:, None], scores * head_dim**-0.5, -jnp.inf), axis=-1).astype(v.dtype)
        queries.append(own)
        shares.append(share)
        mixed.append(jnp.einsum("bmqk,bmkh->bmqh", share, values[:, :, first:stop]))
    kept = Kept(tuple(queries), tuple(mixed), keys, values, tuple(shares), segment_ids)
    return jnp.concatenate([_by_query(part, group) for part in mixed], axis=1), kept


def _backward(window: int | None, block_tokens: int, kept: Kept, pull: Array) -> tuple[Array, Array, Array, np.ndarray]:
    tokens, heads, head_dim = pull.shape[1:]
    group = heads // kept.keys.shape[1]
    of_queries = []
    of_keys = of_values = jnp.zeros(kept.keys.mT.shape, jnp.float32)
    blocks = zip(_blocks(tokens, window, block_tokens), kept.queries, kept.mixed, kept.shares, strict=True)
    for (start, stop, first), queries, mixed, share in blocks:
        pulled = _by_key_head(pull[:, start:stop], group)
        of_share = jnp.einsum("bmqh,bmkh->bmqk", pulled, kept.values[:, :, first:stop], preferred_element_type=jnp.float32)
        carried = jnp.sum(pulled.astype(jnp.float32) * mixed.astype(jnp.float32), axis=-1, keepdims=True)
        of_scores = (share * (of_share - carried) * head_dim**-0.5).astype(pull.dtype)
        of_queries.append(_by_query(jnp.einsum("bmqk,bmkh->bmqh", of_scores, kept.keys[:, :, first:stop]), group))
        of_keys = of_keys + _at_keys(queries, of_scores, first, tokens)
        of_values = of_values + _at_keys(pulled, share, first, tokens)
    of_k, of_v = (a.transpose(0, 3, 1, 2).astype(pull.dtype) for a in (of_keys, of_values))
    return jnp.concatenate(of_queries, axis=1), of_k, of_v, np.zeros(kept.segment_ids.shape, jax.dtypes.float0)


attend_by_triangle.defvjp(_forward, _backward)


def _blocks(tokens: int, window: int | None, block_tokens: int) -> Iterator[tuple[int, int, int]]:
    """(first query, end of queries and of keys, first key) of each block."""
    for start in range(0, tokens, block_tokens):
        yield start, min(start + block_tokens, tokens), 0 if window is None else max(0, start - window + 1)


def _by_key_head(rows: Array, group: int) -> Array:
    """[batch, queries, heads, head_dim] as [batch, kv_heads, group x queries, head_dim]."""
    batch, queries, heads, head_dim = rows.shape
    return (
        rows.reshape(batch, queries, heads // group, group, head_dim).transpose(0, 2, 3, 1, 4).reshape(batch, heads // group, -1, head_dim)
    )


def _by_query(rows: Array, group: int) -> Array:
    """Back to [batch, queries, heads, head_dim]."""
    batch, kv_heads, together, head_dim = rows.shape
    apart = rows.reshape(batch, kv_heads, group, together // group, head_dim)
    return apart.transpose(0, 3, 1, 2, 4).reshape(batch, together // group, kv_heads * group, head_dim)


def _at_keys(queries: Array, scores: Array, first: int, tokens: int) -> Array:
    """Sum over queries for each key from `first` on, 0 elsewhere: [batch, kv_heads, head_dim, tokens], float32.

    Keys come last: with the channels last a CPU multiplies at a third of the rate. Queries are turned over as in `projection.outer_sum`.
    """
    turned = jax.lax.optimization_barrier(queries.mT)
    part = jnp.einsum("bmhq,bmqk->bmhk", turned, scores, preferred_element_type=jnp.float32)
    return jnp.pad(part, ((0, 0), (0, 0), (0, 0), (first, tokens - first - part.shape[3])))
