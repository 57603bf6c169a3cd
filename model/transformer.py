"""The decoder: embedding, layers, final norm. The head belongs to model/loss.py, which never builds all logits."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import ModelConfig
from model.attention import LayerKind, attention, kind_of
from model.moe import moe
from model.neighbour import convolve
from model.norm import norm
from model.parameters import BANK, Params, declare
from model.rope import angles
from model.router import RouterStats
from model.shards import WHOLE, Shards

Body = Callable[[Array, Params, Array], tuple[Array, RouterStats]]


def forward(
    params: Params, router_bias: Array, config: ModelConfig, tokens: Array, segment_ids: Array, *, shards: Shards = WHOLE
) -> tuple[Array, RouterStats]:
    """Hidden states behind the final norm.

    Args:
        params: as `parameters.declare` lays them out; layers that share a bank of experts read the same one.
        router_bias: [layers, experts], from the last step's `RouterStats.next_bias`.
        tokens, segment_ids: [batch, tokens] int32.
        shards: inside a map over devices, how batch and parameters are split over them; router statistics then cover all shards.

    Returns:
        hidden [batch, tokens, width] in compute dtype, and the router statistics.
    """
    dtype = jnp.dtype(config.kernels.compute_dtype)
    turns = angles(tokens.shape[1], config.rotated_channels, config.rope_theta)
    leaves = declare(config)
    layers, outside = leaves["layers"], {name: leaf for name, leaf in leaves.items() if name not in ("layers", "head")}
    around = shards.gathered(outside, {name: params[name] for name in outside})
    x = norm(around["embedding"].astype(dtype)[tokens], around["embedding_norm"], config.norm_eps)

    def body(kind: LayerKind, x: Array, weights: Params, bias: Array) -> tuple[Array, RouterStats]:
        whole = shards.gathered(layers, weights, stack_axes=1)
        return _layer(x, whole, bias, config, kind, segment_ids, turns, shards)

    bodies: list[Body] = [functools.partial(body, kind_of(config, layer)) for layer in range(config.layers)]
    if config.kernels.rematerialize_layers:
        bodies = [jax.checkpoint(one) for one in bodies]
    elif shards.parts > 1:
        bodies = [jax.checkpoint(one, policy=_all_but_gathered) for one in bodies]
    x, stats = _run_layers(bodies, config, x, _split_bank(params["layers"]), router_bias)
    return norm(x, around["final_norm"], config.norm_eps), stats


def _all_but_gathered(primitive: Any, *_: Any, **__: Any) -> bool:
    """What the backward pass keeps: everything but gathered parameters, which it gathers again, and their casts."""
    return primitive.name not in ("all_gather", "convert_element_type")


def _layer(
    x: Array,
    weights: Params,
    bias: Array,
    config: ModelConfig,
    kind: LayerKind,
    segment_ids: Array,
    turns: Array,
    shards: Shards,
) -> tuple[Array, RouterStats]:
    batch, tokens, width = x.shape
    attended = norm(x, weights["attention"]["norm"], config.norm_eps)
    x = x + attention(attended, weights["attention"], config, kind, segment_ids, turns)
    rows = norm(x, weights["moe"]["norm"], config.norm_eps).reshape(batch * tokens, width)
    is_token = (segment_ids >= 0).reshape(-1)
    mixed, stats = moe(rows, weights["moe"], bias, config, is_token, shards=shards)
    mixed = mixed.reshape(x.shape)
    if "moe_taps" in weights["moe"]:
        mixed = convolve(mixed, weights["moe"]["moe_taps"], segment_ids)
    return x + mixed, stats


def _scanned_periods(config: ModelConfig) -> tuple[int, int]:
    """(layers of a period, whole periods): the repetitive head of the stack that `scan` compiles once; the rest is unrolled."""
    tied = config.expert_tying_layers
    if config.kernels.layer_loop == "unrolled":
        return tied, 0
    if config.window_tokens is None or config.global_every is None:
        return tied, config.layers // tied
    period = math.lcm(config.global_every, tied)
    return period, config.layers // period


def _split_bank(layers: Params) -> tuple[Params, Params]:
    """Leaves by layer, and leaves by bank."""
    moe = layers["moe"]
    return layers | {"moe": {name: leaf for name, leaf in moe.items() if name not in BANK}}, {name: moe[name] for name in BANK}


def _run_layers(
    bodies: Sequence[Body], config: ModelConfig, x: Array, weights: tuple[Params, Params], bias: Array
) -> tuple[Array, RouterStats]:
    period, repeats = _scanned_periods(config)
    (layers, banks), tied, scanned = weights, config.expert_tying_layers, period * repeats
    collected: list[RouterStats] = []
    if repeats:

        def run_period(x: Array, stacked: tuple[Params, Params, Array]) -> tuple[Array, RouterStats]:
            return _run_in_turn(bodies[:period], x, *stacked, tied)

        folded = (_folded(layers, repeats, period), _folded(banks, repeats, period // tied), _folded(bias, repeats, period))
        x, stats = jax.lax.scan(run_period, x, folded)
        collected.append(jax.tree.map(lambda a: a.reshape(scanned, *a.shape[2:]), stats))
    if scanned < len(bodies):
        rest, rest_of_banks = _from(layers, scanned), _from(banks, scanned // tied)
        x, stats = _run_in_turn(bodies[scanned:], x, rest, rest_of_banks, bias[scanned:], tied)
        collected.append(stats)
    return x, jax.tree.map(lambda *parts: jnp.concatenate(parts), *collected)


def _from(tree: Any, first: int) -> Any:
    return jax.tree.map(lambda a: a[first:], tree)


def _folded(tree: Any, repeats: int, period: int) -> Any:
    return jax.tree.map(lambda a: a[: repeats * period].reshape(repeats, period, *a.shape[1:]), tree)


def _run_in_turn(bodies: Sequence[Body], x: Array, layers: Params, banks: Params, bias: Array, tied: int) -> tuple[Array, RouterStats]:
    collected: list[RouterStats] = []
    for index, body in enumerate(bodies):
        own, own_bias = jax.tree.map(lambda a, i=index: a[i], (layers, bias))
        bank = jax.tree.map(lambda a, i=index // tied: a[i], banks)
        x, stats = body(x, own | {"moe": own["moe"] | bank}, own_bias)
        collected.append(stats)
    return x, jax.tree.map(lambda *parts: jnp.stack(parts), *collected)
