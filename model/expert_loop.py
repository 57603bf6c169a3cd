"""A bank of experts, one expert after another: its rows in blocks of a fixed size, its matrices read once. For CPUs.

Choices are sorted by expert, so an expert's rows lie together and nothing is padded: a block that reaches over the end of its
expert computes rows of the next one too, whose own block overwrites them. The gradient is written out, because the derivative of
a gather is a scatter, which a CPU does one row at a time: everything here gathers, in both directions.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from model.projection import outer_sum


class Sorted(NamedTuple):
    """Choices in stable order of their expert.

    Attributes:
        token: [T K] whose choice a row is.
        row: [T, K] where a choice lies among the rows.
        first: [E + 1] where each expert's rows begin; the last entry is where all end.
    """

    token: Array
    row: Array
    first: Array


Bank = tuple[Array, Array, Array]
"""gate, up [E, width, hidden] and down [E, hidden, width]."""


def sort_choices(experts: Array, members: int) -> Sorted:
    """Sort choices [T, K] by expert; an expert number of `members` is nobody, and its rows come last."""
    flat = experts.reshape(-1)
    order = jnp.argsort(flat, stable=True).astype(jnp.int32)
    row = jnp.zeros(flat.size, jnp.int32).at[order].set(jnp.arange(flat.size, dtype=jnp.int32), unique_indices=True)
    first = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(jnp.bincount(flat, length=members)).astype(jnp.int32)])
    return Sorted(order // experts.shape[1], row.reshape(experts.shape), first)


def run_in_loops(x: Array, bank: Bank, experts: Array, weights: Array, block_rows: int) -> Array:
    """Give every token all of its experts.

    Args:
        x: [T, width].
        experts, weights: [T, K]; a number of E is no expert and adds nothing.
        block_rows: rows that are multiplied at once.

    Returns:
        [T, width] in x's dtype; the sum over experts is float32.
    """
    return _run(x, bank, sort_choices(experts, bank[0].shape[0]), weights, min(block_rows, experts.size))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _run(x: Array, bank: Bank, rows: Sorted, weights: Array, block_rows: int) -> Array:
    return _forward(x, bank, rows, weights, block_rows)[0]


class _Kept(NamedTuple):
    """What the backward pass reads: the arguments, and of each row its input, both hidden halves side by side and its output."""

    bank: Bank
    rows: Sorted
    weights: Array
    inputs: Array
    opened: Array
    outputs: Array


def _forward(x: Array, bank: Bank, rows: Sorted, weights: Array, block_rows: int) -> tuple[Array, _Kept]:
    inputs = _with_room(x[rows.token], block_rows)
    hidden_width = bank[0].shape[2]

    def block(start: Array, inward: Array, down: Array, filled: tuple[Array, Array]) -> tuple[Array, Array]:
        opened = _block(inputs, start, block_rows) @ inward
        out = (jax.nn.silu(opened[:, :hidden_width]) * opened[:, hidden_width:]) @ down
        return _put(filled[0], opened, start), _put(filled[1], out, start)

    def expert(number: Array, filled: tuple[Array, Array]) -> tuple[Array, Array]:
        inward, down = _of_expert(bank, number)
        made: tuple[Array, Array] = _over_blocks(
            rows.first, number, block_rows, lambda start, state: block(start, inward, down, state), filled
        )
        return made

    empty = jnp.zeros((inputs.shape[0], 2 * hidden_width), x.dtype), jnp.zeros_like(inputs)
    opened, outputs = jax.lax.fori_loop(0, bank[0].shape[0], expert, empty)
    weights = jnp.where(rows.row < rows.first[-1], weights, 0)  # a row of nobody may hold what the last block made of it
    mixed = jnp.einsum("tkd,tk->td", outputs[rows.row].astype(jnp.float32), weights).astype(x.dtype)
    return mixed, _Kept(bank, rows, weights, inputs, opened, outputs)


def _backward(block_rows: int, kept: _Kept, pull: Array) -> tuple[Array, Bank, Any, Array]:
    rows, weights, bank = kept.rows, kept.weights, kept.bank
    hidden_width = bank[0].shape[2]
    wide = pull.astype(jnp.float32)
    weight_of_row = jnp.zeros(rows.token.size, weights.dtype).at[rows.row.reshape(-1)].set(weights.reshape(-1), unique_indices=True)
    pulled = _with_room((wide[rows.token] * weight_of_row[:, None]).astype(pull.dtype), block_rows)
    weights_gradient = jnp.einsum("tkd,td->tk", kept.outputs[rows.row].astype(jnp.float32), wide)
    weights_gradient = jnp.where(rows.row < rows.first[-1], weights_gradient, 0).astype(weights.dtype)

    def block(start: Array, end: Array, inward: Array, down: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        inputs_gradient, to_inward, to_down = state
        taken, opened, out = (_block(a, start, block_rows) for a in (kept.inputs, kept.opened, pulled))
        out = jnp.where((start + jnp.arange(block_rows) < end)[:, None], out, 0)  # the next expert's rows are not this one's
        gate, up = opened[:, :hidden_width], opened[:, hidden_width:]
        share = jax.nn.sigmoid(gate)
        silu = gate * share
        hidden = out @ down.T
        of_opened = jnp.concatenate([hidden * up * (share + silu * (1 - share)), hidden * silu], axis=1)
        inputs_gradient = _put(inputs_gradient, of_opened @ inward.T, start)
        return inputs_gradient, to_inward + outer_sum(taken, of_opened), to_down + outer_sum(silu * up, out)

    def expert(number: Array, state: tuple[Array, Bank]) -> tuple[Array, Bank]:
        inputs_gradient, gradients = state
        inward, down = _of_expert(bank, number)
        empty = jnp.zeros(inward.shape, jnp.float32), jnp.zeros(down.shape, jnp.float32)
        end = rows.first[number + 1]
        inputs_gradient, to_inward, to_down = _over_blocks(
            rows.first, number, block_rows, lambda start, state: block(start, end, inward, down, state), (inputs_gradient, *empty)
        )
        own = to_inward[:, :hidden_width], to_inward[:, hidden_width:], to_down
        placed = (
            jax.lax.dynamic_update_index_in_dim(all_, one.astype(all_.dtype), number, 0) for all_, one in zip(gradients, own, strict=True)
        )
        return inputs_gradient, tuple(placed)  # type: ignore[return-value]

    start = (jnp.zeros_like(kept.inputs), tuple(jnp.zeros_like(m) for m in bank))
    inputs_gradient, bank_gradient = jax.lax.fori_loop(0, bank[0].shape[0], expert, start)
    x_gradient = jnp.sum(inputs_gradient[rows.row].astype(jnp.float32), axis=1).astype(pull.dtype)
    nothing = jax.tree.map(lambda a: np.zeros(a.shape, jax.dtypes.float0), rows)
    return x_gradient, bank_gradient, nothing, weights_gradient


_run.defvjp(_forward, _backward)


def _over_blocks(first: Array, number: Array, block_rows: int, body: Any, state: Any) -> Any:
    """Carry `state` through the blocks of one expert; `body` gets each block's first row."""
    begin = first[number]
    blocks = (first[number + 1] - begin + block_rows - 1) // block_rows
    return jax.lax.fori_loop(0, blocks, lambda index, state: body(begin + index * block_rows, state), state)


def _of_expert(bank: Bank, number: Array) -> tuple[Array, Array]:
    """An expert's gate and up side by side [width, 2 hidden], so that one product makes both, and its down."""
    gate, up, down = (jax.lax.dynamic_index_in_dim(m, number, keepdims=False) for m in bank)
    return jnp.concatenate([gate, up], axis=1), down


def _with_room(rows: Array, block_rows: int) -> Array:
    """Rows with a block of zeros behind them, into which the last block may reach."""
    return jnp.pad(rows, ((0, block_rows), (0, 0)))


def _block(rows: Array, start: Array, block_rows: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(rows, start, block_rows)


def _put(rows: Array, block: Array, start: Array) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(rows, block.astype(rows.dtype), start, axis=0)
