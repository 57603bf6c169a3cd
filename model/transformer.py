"""The decoder: embedding, layers, final norm. The head belongs to model/loss.py, which never builds all logits."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from model.attention import LayerKind, attention
from model.config import ModelConfig
from model.moe import RouterStats, moe
from model.norm import norm
from model.parameters import Params
from model.rope import angles

Body = Callable[[Array, Params, Array], tuple[Array, RouterStats]]


def forward(
    params: Params, router_bias: Array, config: ModelConfig, tokens: Array, segment_ids: Array, *, data_axis: str | None = None
) -> tuple[Array, RouterStats]:
    """Hidden states behind the final norm.

    Args:
        router_bias: [layers, experts], from the last step's `RouterStats.next_bias`.
        tokens, segment_ids: [batch, tokens] int32.
        data_axis: inside a `shard_map`, the axis the batch is split over; router statistics then cover all shards.

    Returns:
        hidden [batch, tokens, width] in compute dtype, and the router statistics.
    """
    dtype = jnp.dtype(config.kernels.compute_dtype)
    turns = angles(tokens.shape[1], config.rotated_channels, config.rope_theta)
    x = norm(params["embedding"].astype(dtype)[tokens], params["embedding_norm"], config.norm_eps)

    def body(kind: LayerKind, x: Array, weights: Params, bias: Array) -> tuple[Array, RouterStats]:
        return _layer(x, weights, bias, config, kind, segment_ids, turns, data_axis)

    kinds = [LayerKind(config.window(layer), config.rotates(layer)) for layer in range(config.layers)]
    bodies: list[Body] = [functools.partial(body, kind) for kind in kinds]
    if config.kernels.rematerialize_layers:
        bodies = [jax.checkpoint(one) for one in bodies]
    x, stats = _run_layers(bodies, _scanned_periods(config), x, params["layers"], router_bias)
    return norm(x, params["final_norm"], config.norm_eps), stats


def _layer(
    x: Array,
    weights: Params,
    bias: Array,
    config: ModelConfig,
    kind: LayerKind,
    segment_ids: Array,
    turns: Array,
    data_axis: str | None,
) -> tuple[Array, RouterStats]:
    batch, tokens, width = x.shape
    attended = norm(x, weights["attention"]["norm"], config.norm_eps)
    x = x + attention(attended, weights["attention"], config, kind, segment_ids, turns)
    rows = norm(x, weights["moe"]["norm"], config.norm_eps).reshape(batch * tokens, width)
    is_token = (segment_ids >= 0).reshape(-1)
    mixed, stats = moe(rows, weights["moe"], bias, config, is_token, data_axis=data_axis)
    return x + mixed.reshape(x.shape), stats


def _scanned_periods(config: ModelConfig) -> tuple[int, int]:
    """(layers of a period, whole periods): the repetitive head of the stack that `scan` compiles once; the rest is unrolled."""
    if config.kernels.layer_loop == "unrolled":
        return 1, 0
    if config.window_tokens is None or config.global_every is None:
        return 1, config.layers
    return config.global_every, config.layers // config.global_every


def _run_layers(bodies: Sequence[Body], periods: tuple[int, int], x: Array, layers: Params, bias: Array) -> tuple[Array, RouterStats]:
    period, repeats = periods
    scanned = period * repeats
    collected: list[RouterStats] = []
    if repeats:

        def run_period(x: Array, stacked: tuple[Params, Array]) -> tuple[Array, RouterStats]:
            return _run_in_turn(bodies[:period], x, *stacked)

        folded = jax.tree.map(lambda a: a[:scanned].reshape(repeats, period, *a.shape[1:]), (layers, bias))
        x, stats = jax.lax.scan(run_period, x, folded)
        collected.append(jax.tree.map(lambda a: a.reshape(scanned, *a.shape[2:]), stats))
    if scanned < len(bodies):
        x, stats = _run_in_turn(bodies[scanned:], x, *jax.tree.map(lambda a: a[scanned:], (layers, bias)))
        collected.append(stats)
    return x, jax.tree.map(lambda *parts: jnp.concatenate(parts), *collected)


def _run_in_turn(bodies: Sequence[Body], x: Array, layers: Params, bias: Array) -> tuple[Array, RouterStats]:
    collected: list[RouterStats] = []
    for index, body in enumerate(bodies):
        x, stats = body(x, *jax.tree.map(lambda a, i=index: a[i], (layers, bias)))
        collected.append(stats)
    return x, jax.tree.map(lambda *parts: jnp.stack(parts), *collected)
