"""The mixture of experts: a router that chooses, a bank of experts that computes, and balancing that learns from both.

Dropless in every back end: each token gets all of its experts, however uneven the choice.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from model.config import ModelConfig


class RouterStats(NamedTuple):
    """What routers did; of one layer here, with a leading [layers] axis when a whole model reports.

    Attributes:
        load: tokens per expert [E] float32, padding left out, over all shards.
        next_bias: selection bias of the next step [E] float32.
        entropy: of the load in nats, scalar; ln E when balanced.
    """

    load: Array
    next_bias: Array
    entropy: Array


def moe(
    x: Array, weights: Mapping[str, Array], router_bias: Array, config: ModelConfig, is_token: Array, *, data_axis: str | None
) -> tuple[Array, RouterStats]:
    """Routed experts plus the shared one.

    Args:
        x: [T, width], already normalised.
        weights: this layer's leaves of `layers/moe`.
        router_bias: [E]; moves the choice, never the weight, and has no gradient.
        is_token: [T] booleans; padding is routed like any token but balancing does not see it.
        data_axis: mapped axis over which router statistics are taken.
    """
    experts, combine, stats = route(x, weights["router"], router_bias, config, is_token, data_axis=data_axis)
    gate, up, down = (weights[name].astype(x.dtype) for name in ("expert_gate", "expert_up", "expert_down"))
    routed = run_experts(x, gate, up, down, experts, combine, config)
    if not config.shared_expert_width:
        return routed, stats
    shared_gate, shared_up, shared_down = (weights[name].astype(x.dtype) for name in ("shared_gate", "shared_up", "shared_down"))
    return routed + (jax.nn.silu(x @ shared_gate) * (x @ shared_up)) @ shared_down, stats


def route(
    x: Array, router: Array, router_bias: Array, config: ModelConfig, is_token: Array, *, data_axis: str | None
) -> tuple[Array, Array, RouterStats]:
    """Choose each token's top experts by biased score; weigh them by the sigmoid of the unbiased one, renormalised.

    Returns:
        experts [T, K] int32, best first; combine weights [T, K] float32 that sum to router_combine_scale; statistics.
    """
    scores = x.astype(jnp.float32) @ router
    biased = jax.lax.stop_gradient(scores + router_bias)
    experts = jax.lax.top_k(biased, config.experts_per_token)[1]
    affinity = jax.nn.sigmoid(jnp.take_along_axis(scores, experts, axis=-1))
    combine = config.router_combine_scale * affinity / jnp.sum(affinity, axis=-1, keepdims=True)

    load = _total(jnp.sum(jax.nn.one_hot(experts, config.experts) * is_token[:, None, None], axis=(0, 1)), data_axis)
    share = load / jnp.maximum(jnp.sum(load), 1)
    entropy = -jnp.sum(jax.scipy.special.xlogy(share, share))
    if config.router_balancing == "quantile":
        raw_scores = jax.lax.stop_gradient(scores)
        next_bias = balanced_bias(raw_scores, biased, config.experts_per_token, is_token, data_axis=data_axis)
    else:
        next_bias = router_bias
    return experts, combine, RouterStats(load, next_bias, entropy)


def balanced_bias(scores: Array, biased: Array, experts_per_token: int, is_token: Array, *, data_axis: str | None) -> Array:
    """The bias under which each expert would have been chosen by its fair share of these tokens.

    Args:
        scores: [T, E] float32 router scores without bias.
        biased: [T, E] the scores that chose.
        is_token: [T] booleans; other rows neither count nor vote.
        data_axis: mapped axis whose shards together are the batch.

    Returns:
        [E], mean 0. An expert's bias is minus the upper K/E quantile of its margins over the cutoff, where a token's cutoff
        is its best biased score that was not chosen. The quantile is exact and the same for any sharding.
    """
    cutoff = jax.lax.top_k(biased, experts_per_token + 1)[0][:, -1:]
    margins = jnp.where(is_token[:, None], scores - cutoff, -jnp.inf)
    tokens = _total(jnp.sum(is_token), data_axis)
    fair_share = jnp.maximum(tokens * experts_per_token // scores.shape[-1], 1)
    bias = -kth_largest(margins, fair_share, data_axis=data_axis)
    bias = jnp.where(tokens > 0, bias, 0.0)
    return bias - jnp.mean(bias)


def kth_largest(values: Array, k: Array, *, data_axis: str | None) -> Array:
    """The k-th largest entry of every column, exactly, without sorting.

    Args:
        values: [T, E] float32.
        k: scalar integer from 1; k-th over all shards of `data_axis`.

    Floats keep their order as unsigned integers once negative ones are flipped, so the answer's 32 bits are found from
    the top by counting. Counts add over shards, which sorting does not.
    """
    bits = jax.lax.bitcast_convert_type(values, jnp.uint32)
    ordered = jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))

    def decide(i: Array, found: Array) -> Array:
        candidate = found | (jnp.uint32(1 << 31) >> i.astype(jnp.uint32))
        reached = _total(jnp.sum(ordered >= candidate, axis=0), data_axis)
        return jnp.where(reached >= k, candidate, found)

    found = jax.lax.fori_loop(0, 32, decide, jnp.zeros(values.shape[-1], jnp.uint32))
    restored = jnp.where(found >> 31 == 1, found & jnp.uint32((1 << 31) - 1), ~found)
    return jax.lax.bitcast_convert_type(restored, jnp.float32)


def run_experts(x: Array, gate: Array, up: Array, down: Array, experts: Array, weights: Array, config: ModelConfig) -> Array:
    """sum over a token's experts of weight * down(silu(gate x) * up x), by the back end the config names.

    Args:
        x: [T, width].
        gate, up: [E, width, expert_width]. down: [E, expert_width, width].
        experts, weights: [T, K].

    Returns:
        [T, width] in x's dtype; the sum over experts is float32.
    """
    match config.kernels.moe_backend:
        case "dense":
            return _dense(x, gate, up, down, experts, weights)
        case "blocked":
            return _blocked(x, gate, up, down, experts, weights, config.kernels.moe_block_rows)
        case "ragged":
            return _ragged(x, gate, up, down, experts, weights)


def _dense(x: Array, gate: Array, up: Array, down: Array, experts: Array, weights: Array) -> Array:
    """Every expert on every token, masked by the combine weights: the oracle."""
    combine = jnp.einsum("tk,tke->te", weights, jax.nn.one_hot(experts, gate.shape[0]))
    hidden = jax.nn.silu(jnp.einsum("td,edf->tef", x, gate)) * jnp.einsum("td,edf->tef", x, up)
    out = jnp.einsum("tef,efd->ted", hidden, down)
    return jnp.einsum("ted,te->td", out.astype(jnp.float32), combine).astype(x.dtype)


def _ragged(x: Array, gate: Array, up: Array, down: Array, experts: Array, weights: Array) -> Array:
    """Assignments sorted by expert, one grouped matmul each. Native on TPU; elsewhere XLA expands it E-fold."""
    order, sizes = _by_expert(experts, gate.shape[0])
    rows = x[order // experts.shape[1]]
    hidden = jax.nn.silu(jax.lax.ragged_dot(rows, gate, sizes)) * jax.lax.ragged_dot(rows, up, sizes)
    out = jax.lax.ragged_dot(hidden, down, sizes)
    return _combine(out, jnp.argsort(order), weights)


def _blocked(x: Array, gate: Array, up: Array, down: Array, experts: Array, weights: Array, block_rows: int) -> Array:
    """Assignments sorted by expert into blocks of one expert each, then batched matmuls over blocks.

    Every expert's rows start at a block's start, so a static number of blocks holds any choice.
    """
    chosen, (bank, width, _) = experts.shape[1], gate.shape
    assignments = experts.size
    blocks = -(-assignments // block_rows) + min(bank, assignments)
    order, sizes = _by_expert(experts, bank)

    blocks_of_expert = -(-sizes // block_rows)
    first_block = jnp.cumsum(blocks_of_expert) - blocks_of_expert
    owner = jnp.clip(jnp.searchsorted(jnp.cumsum(blocks_of_expert), jnp.arange(blocks), side="right"), 0, bank - 1)
    expert_of_row = experts.reshape(-1)[order]
    place_in_expert = jnp.arange(assignments) - (jnp.cumsum(sizes) - sizes)[expert_of_row]
    slot_of_row = first_block[expert_of_row] * block_rows + place_in_expert

    empty = x.shape[0]  # a token index no row has: gathers read zeros there
    token_of_slot = jnp.full(blocks * block_rows, empty, jnp.int32).at[slot_of_row].set(order // chosen, unique_indices=True)
    rows = x.at[token_of_slot].get(mode="fill", fill_value=0).reshape(blocks, block_rows, width)
    hidden = jax.nn.silu(jnp.einsum("brd,bdf->brf", rows, gate[owner])) * jnp.einsum("brd,bdf->brf", rows, up[owner])
    out = jnp.einsum("brf,bfd->brd", hidden, down[owner])
    slot_of_assignment = jnp.zeros(assignments, jnp.int32).at[order].set(slot_of_row, unique_indices=True)
    return _combine(out.reshape(blocks * block_rows, width), slot_of_assignment, weights)


def _by_expert(experts: Array, bank: int) -> tuple[Array, Array]:
    """Flat assignments in stable order of their expert, and how many each expert has [E] int32."""
    flat = experts.reshape(-1)
    return jnp.argsort(flat, stable=True), jnp.bincount(flat, length=bank).astype(jnp.int32)


def _combine(rows: Array, row_of_assignment: Array, weights: Array) -> Array:
    """Weighted float32 sum of each token's rows, gathered back to token order."""
    gathered = rows[row_of_assignment].reshape(*weights.shape, rows.shape[-1])
    return jnp.einsum("tkd,tk->td", gathered.astype(jnp.float32), weights).astype(rows.dtype)


def _total(x: Array, data_axis: str | None) -> Array:
    return x if data_axis is None else jax.lax.psum(x, data_axis)
