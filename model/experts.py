"""A bank of experts: sum over a token's experts of weight * down(silu(gate x) * up x), by several back ends.

The dense one is the specification; the others compute the same from sorted rows.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import KernelConfig
from model.capacity import Places
from model.expert_loop import run_in_loops


class Bank(NamedTuple):
    """gate, up: [E, width, hidden]. down: [E, hidden, width]."""

    gate: Array
    up: Array
    down: Array


def run_experts(x: Array, bank: Bank, experts: Array, weights: Array, kernels: KernelConfig) -> Array:
    """Give every token all of its experts, by the back end that is named.

    Args:
        x: [T, width].
        experts, weights: [T, K]; a weight of 0 leaves the expert's output out.

    Returns:
        [T, width] in x's dtype; the sum over experts is float32.
    """
    match kernels.moe_backend:
        case "dense":
            return _dense(x, bank, experts, weights)
        case "blocked":
            return _blocked(x, bank, experts, weights, kernels.moe_block_rows)
        case "ragged":
            return _ragged(x, bank, experts, weights)
        case "looped":
            return run_in_loops(x, (bank.gate, bank.up, bank.down), experts, weights, kernels.moe_block_rows)


def idle_expert(kernels: KernelConfig, members: int) -> int:
    """The expert number of a row of zeros that belongs to nobody: some can leave it out, the others compute its zeros."""
    return members if kernels.moe_backend in ("ragged", "looped") else members - 1


def run_in_cells(x: Array, bank: Bank, places: Places, weights: Array) -> Array:
    """Give every token those of its experts that have room: buffers of fixed size, one batched matmul over all experts.

    Args:
        x: [T, width].
        weights: [T, K] float32; those of dropped choices are not read.

    Returns:
        [T, width] in x's dtype; the sum over experts is float32.
    """
    chosen, slots = weights.shape[1], bank.gate.shape[0] * places.slots_per_expert
    token_of_choice = jnp.broadcast_to(jnp.arange(x.shape[0], dtype=jnp.int32)[:, None], places.slot.shape)
    empty = x.shape[0]  # a token index no row has: gathers read zeros there
    token_of_slot = jnp.full(slots, empty, jnp.int32).at[places.slot.reshape(-1)].set(token_of_choice.reshape(-1), mode="drop")
    rows = x.at[token_of_slot].get(mode="fill", fill_value=0).reshape(bank.gate.shape[0], places.slots_per_expert, -1)
    hidden = jax.nn.silu(jnp.einsum("ecd,edf->ecf", rows, bank.gate)) * jnp.einsum("ecd,edf->ecf", rows, bank.up)
    out = jnp.einsum("ecf,efd->ecd", hidden, bank.down).reshape(slots, -1)
    found = out.at[places.slot.reshape(-1)].get(mode="fill", fill_value=0).reshape(-1, chosen, out.shape[-1])
    return jnp.einsum("tkd,tk->td", found.astype(jnp.float32), weights).astype(x.dtype)


def _dense(x: Array, bank: Bank, experts: Array, weights: Array) -> Array:
    """Every expert on every token, masked by the combine weights: the oracle."""
    combine = jnp.einsum("tk,tke->te", weights, jax.nn.one_hot(experts, bank.gate.shape[0]))
    hidden = jax.nn.silu(jnp.einsum("td,edf->tef", x, bank.gate)) * jnp.einsum("td,edf->tef", x, bank.up)
    out = jnp.einsum("tef,efd->ted", hidden, bank.down)
    return jnp.einsum("ted,te->td", out.astype(jnp.float32), combine).astype(x.dtype)


def _ragged(x: Array, bank: Bank, experts: Array, weights: Array) -> Array:
    """Assignments sorted by expert, one grouped matmul each. Native on TPU; elsewhere XLA expands it E-fold."""
    order, sizes = _by_expert(experts, bank.gate.shape[0])
    rows = x[order // experts.shape[1]]
    hidden = jax.nn.silu(jax.lax.ragged_dot(rows, bank.gate, sizes)) * jax.lax.ragged_dot(rows, bank.up, sizes)
    out = jax.lax.ragged_dot(hidden, bank.down, sizes)
    return combined(out, jnp.argsort(order), weights)


def _blocked(x: Array, bank: Bank, experts: Array, weights: Array, block_rows: int) -> Array:
    """Assignments sorted by expert into blocks of one expert each, then batched matmuls over blocks.

    Every expert's rows start at a block's start, so a static number of blocks holds any choice.
    """
    chosen, (members, width, _) = experts.shape[1], bank.gate.shape
    assignments = experts.size
    blocks = -(-assignments // block_rows) + min(members, assignments)
    order, sizes = _by_expert(experts, members)

    blocks_of_expert = -(-sizes // block_rows)
    first_block = jnp.cumsum(blocks_of_expert) - blocks_of_expert
    owner = jnp.clip(jnp.searchsorted(jnp.cumsum(blocks_of_expert), jnp.arange(blocks), side="right"), 0, members - 1)
    expert_of_row = experts.reshape(-1)[order]
    place_in_expert = jnp.arange(assignments) - (jnp.cumsum(sizes) - sizes)[expert_of_row]
    slot_of_row = first_block[expert_of_row] * block_rows + place_in_expert

    empty = x.shape[0]  # a token index no row has: gathers read zeros there
    token_of_slot = jnp.full(blocks * block_rows, empty, jnp.int32).at[slot_of_row].set(order // chosen, unique_indices=True)
    rows = x.at[token_of_slot].get(mode="fill", fill_value=0).reshape(blocks, block_rows, width)
    hidden = jax.nn.silu(jnp.einsum("brd,bdf->brf", rows, bank.gate[owner])) * jnp.einsum("brd,bdf->brf", rows, bank.up[owner])
    out = jnp.einsum("brf,bfd->brd", hidden, bank.down[owner])
    slot_of_assignment = jnp.zeros(assignments, jnp.int32).at[order].set(slot_of_row, unique_indices=True)
    return combined(out.reshape(blocks * block_rows, width), slot_of_assignment, weights)


def _by_expert(experts: Array, members: int) -> tuple[Array, Array]:
    """Flat assignments in stable order of their expert, and how many each expert has [E] int32."""
    flat = experts.reshape(-1)
    return jnp.argsort(flat, stable=True), jnp.bincount(flat, length=members).astype(jnp.int32)


def combined(rows: Array, row_of_assignment: Array, weights: Array) -> Array:
    """Weighted float32 sum of each token's rows, gathered back to token order.

    Args:
        rows: [rows, width].
        row_of_assignment: [T K] row of each choice.
        weights: [T, K].
    """
    gathered = rows[row_of_assignment].reshape(*weights.shape, rows.shape[-1])
    return jnp.einsum("tkd,tk->td", gathered.astype(jnp.float32), weights).astype(rows.dtype)
