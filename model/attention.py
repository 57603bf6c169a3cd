"""Grouped-query attention inside documents. Several back ends compute it; tests hold them together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import ModelConfig
from model.exclusion import exclude_own_value
from model.neighbour import convolve, offset_upper_half
from model.norm import rms
from model.projection import apply
from model.rope import rotate
from model.splash import attend_by_splash
from model.triangle import attend_by_triangle, visible


@dataclass(frozen=True)
class LayerKind:
    """What distinguishes one layer's attention from another's; static, so each kind compiles to its own kernel."""

    window: int | None
    rotates: bool
    offsets_keys: bool


def kind_of(config: ModelConfig, layer: int) -> LayerKind:
    """The kind of a layer, counted from 0."""
    return LayerKind(config.window(layer), config.rotates(layer), config.partial_key_offset and config.is_global(layer))


def attention(x: Array, weights: Mapping[str, Array], config: ModelConfig, kind: LayerKind, segment_ids: Array, turns: Array) -> Array:
    """Attention branch of a layer: project, normalise and turn queries and keys, attend, gate, project back.

    Args:
        x: [batch, tokens, width], already normalised.
        weights: this layer's leaves of `layers/attention`.
        segment_ids: [batch, tokens]; attention never crosses a change of id.
        turns: rotation angles [tokens, pairs].

    Returns:
        [batch, tokens, width].
    """
    q, k, v = project(x, weights, config, kind, segment_ids, turns)
    y = attend(q, k, v, segment_ids, config, window=kind.window)
    mixed = join_heads(x, y, v, weights, config)
    return convolve(mixed, weights["attention_taps"], segment_ids) if "attention_taps" in weights else mixed


def project(
    x: Array, weights: Mapping[str, Array], config: ModelConfig, kind: LayerKind, segment_ids: Array, turns: Array
) -> tuple[Array, Array, Array]:
    """Queries [batch, tokens, heads, head_dim], keys and values [batch, tokens, kv_heads, head_dim] as the softmax takes them."""
    batch, tokens, _ = x.shape
    q = apply(x, weights["query"], config.kernels).reshape(batch, tokens, config.heads, config.head_dim)
    k = apply(x, weights["key"], config.kernels)
    if "key_taps" in weights:
        k = convolve(k, weights["key_taps"], segment_ids)
    k = k.reshape(batch, tokens, config.kv_heads, config.head_dim)
    v = apply(x, weights["value"], config.kernels).reshape(batch, tokens, config.kv_heads, config.head_dim)
    if kind.offsets_keys:
        k = offset_upper_half(k, segment_ids)
    if config.qk_norm:
        q, k = rms(q, config.qk_norm_eps).astype(x.dtype), rms(k, config.qk_norm_eps).astype(x.dtype)
    if kind.rotates:
        q, k = rotate(q, turns, config.rope_pairing), rotate(k, turns, config.rope_pairing)
    return q * config.qk_scale, k, v


def join_heads(x: Array, y: Array, v: Array, weights: Mapping[str, Array], config: ModelConfig) -> Array:
    """Heads' outputs y [batch, tokens, heads, head_dim] as a residual update [batch, tokens, width]."""
    if config.exclusive_attention:
        y = exclude_own_value(y, v)
    if config.attention_gate:
        y = y * (2 * jax.nn.sigmoid(x @ weights["gate"].astype(x.dtype)))[..., None]
    return apply(y.reshape(*y.shape[:2], -1), weights["output"], config.kernels)


def attend(q: Array, k: Array, v: Array, segment_ids: Array, config: ModelConfig, *, window: int | None) -> Array:
    """Causal softmax attention inside documents, by the back end the config names.

    Args:
        q: [batch, tokens, heads, head_dim].
        k, v: [batch, tokens, kv_heads, head_dim]; heads is a multiple of kv_heads.
        segment_ids: [batch, tokens]; attention never crosses a change of id.
        window: keys visible to a query, itself included; None for all.

    Returns:
        [batch, tokens, heads, head_dim], in q's dtype; the softmax is float32.

    Source: grouped queries, Ainslie et al. 2023 (arXiv 2305.13245).
    """
    match config.kernels.attention_backend:
        case "plain":
            return _attend_square(q, k, v, segment_ids, window)
        case "triangle":
            return attend_by_triangle(q, k, v, segment_ids, window, config.kernels.attention_block_tokens)
        case "library":
            return _attend_library(q, k, v, segment_ids, window, None)
        case "cudnn":
            return _attend_library(q, k, v, segment_ids, window, "cudnn")
        case "splash":
            return attend_by_splash(q, k, v, segment_ids, window)
        case "probe":
            raise ValueError(
                "attention_backend = 'probe' is settled before a model is traced; pass the model through attention_choice.settled"
            )


def _attend_square(q: Array, k: Array, v: Array, segment_ids: Array, window: int | None) -> Array:
    """Every query against every key. Heads lead, so each product is one batched matmul."""
    batch, tokens, heads, head_dim = q.shape
    kv_heads = k.shape[2]
    queries = q.reshape(batch, tokens, kv_heads, heads // kv_heads, head_dim).transpose(0, 2, 3, 1, 4)
    keys, values = (a.transpose(0, 2, 1, 3) for a in (k, v))
    scores = jnp.einsum("bmgqh,bmkh->bmgqk", queries, keys, preferred_element_type=jnp.float32) * head_dim**-0.5
    seen = visible(segment_ids, segment_ids, 0, 0, window)
    scores = jnp.where(seen[:, None, None], scores, -jnp.inf)
    mixed = jnp.einsum("bmgqk,bmkh->bmgqh", jax.nn.softmax(scores, axis=-1).astype(v.dtype), values)
    return mixed.transpose(0, 3, 1, 2, 4).reshape(batch, tokens, heads, head_dim)


def _attend_library(q: Array, k: Array, v: Array, segment_ids: Array, window: int | None, implementation: Literal["cudnn"] | None) -> Array:
    seen = visible(segment_ids, segment_ids, 0, 0, window)
    return jax.nn.dot_product_attention(q, k, v, mask=seen[:, None], implementation=implementation)
