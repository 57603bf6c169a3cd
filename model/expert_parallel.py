"""Experts that live on several devices: tokens travel to their experts and back, banks stay (expert parallelism).

Each device sorts its choices by expert, so that what goes to one device lies together; all devices tell each other how many tokens
each of their experts gets, and from these counts everybody knows where rows begin. At its goal a row is one choice of one expert,
computed by whichever back end one device uses. Nothing is dropped here that `model.capacity` has not dropped before.
"""

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import KernelConfig
from model.exchange import exchange, routes
from model.experts import Bank, combined, idle_expert, run_experts
from model.shards import EXPERT_AXIS, Shards


def run_apart(x: Array, bank: Bank, experts: Array, weights: Array, kernels: KernelConfig, shards: Shards, *, most: int) -> Array:
    """As `run_experts`, inside a map over devices of which each has a part of the bank, in order.

    Args:
        x: [T, width], this device's tokens.
        bank: this device's experts.
        experts: [T, K] among all experts; their number for a choice that is not computed and adds nothing.
        most: rows that one device can have for another, over all of its experts.

    Returns:
        [T, width] in x's dtype.
    """
    members, devices, here = bank.gate.shape[0], shards.experts, jax.lax.axis_index(EXPERT_AXIS)
    flat, room = experts.reshape(-1), devices * most
    order = jnp.argsort(flat, stable=True)
    counts = jnp.bincount(flat, length=members * devices).astype(jnp.int32)
    counts = jax.lax.all_gather(counts, EXPERT_AXIS).reshape(devices, devices, members)  # [sender, receiver, its expert]
    there, back = routes(jnp.sum(counts, axis=2), here)
    arrived = exchange(x[order // experts.shape[1]], room, there, EXPERT_AXIS, shards.exchange, most=most)

    ends = jnp.cumsum(counts[:, here].reshape(-1))  # runs of rows by sender, then by expert
    run = jnp.searchsorted(ends, jnp.arange(room), side="right")
    is_row = run < ends.size
    member = jnp.where(is_row, run % members, idle_expert(kernels, members))
    out = run_experts(arrived, bank, member[:, None], is_row[:, None].astype(jnp.float32), kernels)
    returned = exchange(out, flat.size, back, EXPERT_AXIS, shards.exchange, most=most)
    return combined(returned, jnp.argsort(order), weights)


def rows_between(tokens: int, chosen: int, members: int, cells: int | None) -> int:
    """Rows that one device can have for another that holds `members` experts.

    Args:
        tokens: of one device; each chooses `chosen` different experts.
        cells: rows that this device may send to one expert; None without a capacity.
    """
    dropless = tokens * min(chosen, members)
    return dropless if cells is None else min(dropless, cells * members)
