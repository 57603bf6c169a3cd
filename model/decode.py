"""The decoder, a few tokens at a time: the same function as `model.transformer.forward` on one document a row, but each token is
computed once and what it needs of earlier ones is remembered. Tests hold the two together."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import ConvolutionSite, ModelConfig
from model.attention import LayerKind, join_heads, kind_of
from model.cache import KeyValues, LayerCache, remember
from model.moe import moe
from model.norm import norm, rms
from model.parameters import BANK, Params, head_of
from model.rope import frequencies, rotate


def read_on(
    params: Params, router_bias: Array, config: ModelConfig, tokens: Array, positions: Array, cache: list[LayerCache]
) -> tuple[Array, list[LayerCache]]:
    """Read the next tokens of every row.

    Args:
        tokens: [batch, tokens] int32. Rows of unequal length are filled up at the front, before their first token.
        positions: [batch, tokens] int32 place of each in its row's text, one after the other; negative for filling.
        cache: what was read before; a model with a capacity reads as the dropless one.

    Returns:
        Logits behind the last token of each row [batch, vocab] float32, and the cache with these tokens in it.
    """
    dtype, config = jnp.dtype(config.kernels.compute_dtype), config.dropless
    turns = positions[..., None] * frequencies(config.rotated_channels, config.rope_theta)
    x = norm(params["embedding"].astype(dtype)[tokens], params["embedding_norm"], config.norm_eps)
    after: list[LayerCache] = []
    for layer, memory in enumerate(cache):
        x, memory = _layer(
            x, _weights_of(params, layer, config), router_bias[layer], config, kind_of(config, layer), positions, turns, memory
        )
        after.append(memory)
    last = norm(x[:, -1], params["final_norm"], config.norm_eps)
    return jnp.matmul(last, head_of(params).astype(dtype), preferred_element_type=jnp.float32), after


def _weights_of(params: Params, layer: int, config: ModelConfig) -> Params:
    own = {name: leaf for name, leaf in params["layers"]["moe"].items() if name not in BANK}
    bank = {name: params["layers"]["moe"][name][layer // config.expert_tying_layers] for name in BANK}
    sliced: Params = jax.tree.map(lambda a: a[layer], {"attention": params["layers"]["attention"], "moe": own})
    return {"attention": sliced["attention"], "moe": sliced["moe"] | bank}


def _layer(
    x: Array,
    weights: Params,
    bias: Array,
    config: ModelConfig,
    kind: LayerKind,
    positions: Array,
    turns: Array,
    cache: LayerCache,
) -> tuple[Array, LayerCache]:
    batch, tokens, width = x.shape
    real = positions >= 0
    attended = norm(x, weights["attention"]["norm"], config.norm_eps)
    mixed, cache = _attention(attended, weights["attention"], config, kind, positions, turns, cache)
    mixed, cache = _convolved(mixed, weights["attention"], "attention", real, cache)
    x = x + mixed
    rows = norm(x, weights["moe"]["norm"], config.norm_eps).reshape(batch * tokens, width)
    mixed, _ = moe(rows, weights["moe"], bias, config, real.reshape(-1))
    mixed, cache = _convolved(mixed.reshape(x.shape), weights["moe"], "moe", real, cache)
    return x + mixed, cache


def _attention(
    x: Array, weights: Mapping[str, Array], config: ModelConfig, kind: LayerKind, positions: Array, turns: Array, cache: LayerCache
) -> tuple[Array, LayerCache]:
    batch, tokens, _ = x.shape
    q = (x @ weights["query"].astype(x.dtype)).reshape(batch, tokens, config.heads, config.head_dim)
    k, cache = _convolved(x @ weights["key"].astype(x.dtype), weights, "key", positions >= 0, cache)
    k = k.reshape(batch, tokens, config.kv_heads, config.head_dim)
    v = (x @ weights["value"].astype(x.dtype)).reshape(batch, tokens, config.kv_heads, config.head_dim)
    if cache.offset is not None:
        k, last = _offset(k, positions >= 0, cache.offset)
        cache = cache._replace(offset=last)
    if config.qk_norm:
        q, k = rms(q, config.qk_norm_eps).astype(x.dtype), rms(k, config.qk_norm_eps).astype(x.dtype)
    if kind.rotates:
        q, k = rotate(q, turns, config.rope_pairing), rotate(k, turns, config.rope_pairing)
    before = cache.attention
    both = KeyValues(
        jnp.concatenate([before.keys, k], axis=1),
        jnp.concatenate([before.values, v], axis=1),
        jnp.concatenate([before.positions, positions], axis=1),
    )
    y = _attend(q * config.qk_scale, both, positions, kind.window)
    return join_heads(x, y, v, weights, config), cache._replace(attention=remember(before, k, v, positions))


def _attend(q: Array, memory: KeyValues, positions: Array, window: int | None) -> Array:
    """Queries at `positions` over every remembered key at or before them, inside the window."""
    batch, tokens, heads, head_dim = q.shape
    grouped = q.reshape(batch, tokens, memory.keys.shape[2], -1, head_dim)
    scores = jnp.einsum("btmgh,bsmh->bmgts", grouped, memory.keys, preferred_element_type=jnp.float32) * head_dim**-0.5
    distance = positions[:, :, None] - memory.positions[:, None, :]
    visible = (distance >= 0) & (memory.positions[:, None, :] >= 0)
    if window is not None:
        visible &= distance < window
    visible |= (positions[:, :, None] < 0) & (distance == 0)  # filling sees filling: its softmax must not be empty
    weights = jax.nn.softmax(jnp.where(visible[:, None, None], scores, -jnp.inf), axis=-1)
    mixed = jnp.einsum("bmgts,bsmh->btmgh", weights.astype(q.dtype), memory.values)
    return mixed.reshape(batch, tokens, heads, head_dim)


def _convolved(x: Array, weights: Mapping[str, Array], site: ConvolutionSite, real: Array, cache: LayerCache) -> tuple[Array, LayerCache]:
    """The short convolution of a site over the remembered tail and these rows; filling counts as nothing before the text."""
    if site not in cache.tails:
        return x, cache
    taps, tail, tokens = weights[f"{site}_taps"], cache.tails[site], x.shape[1]
    rows = jnp.concatenate([tail, jnp.where(real[..., None], x, 0)], axis=1)
    count = taps.shape[0]
    mixed = sum(rows[:, count - 1 - back : count - 1 - back + tokens].astype(jnp.float32) * taps[back] for back in range(count))
    tails = cache.tails | {site: rows[:, rows.shape[1] - (count - 1) :]}
    return jnp.asarray(mixed, x.dtype), cache._replace(tails=tails)


def _offset(k: Array, real: Array, last: Array) -> tuple[Array, Array]:
    """Keys whose upper half is the previous token's, and the last token's own upper half."""
    half = k.shape[-1] // 2
    upper = jnp.concatenate([last, jnp.where(real[..., None, None], k[..., half:], 0)], axis=1)
    return jnp.concatenate([k[..., :half], upper[:, :-1]], axis=-1), upper[:, -1:]
