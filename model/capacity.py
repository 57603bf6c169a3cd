"""Experts of limited capacity: which of a batch's choices find room, and the buffers that hold them.

A cell is the room that one piece of the batch has at one expert, as when each device sends every expert a fixed number of rows.
Cells fill in token order; a choice that finds its cell full is dropped: it adds nothing, and the token's other weights stay.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from model.architecture import ModelConfig


class Places(NamedTuple):
    """Where choices go.

    Attributes:
        slot: [T, K] int32 row of each choice in the buffers [experts, cells of an expert, rows of a cell] laid flat; one past
            the last row for a choice that is dropped.
        fits: [T, K] booleans.
        slots_per_expert: rows of one expert, over all pieces of the batch.
    """

    slot: Array
    fits: Array
    slots_per_expert: int


def cell_rows(config: ModelConfig, tokens: int) -> int:
    """Rows of a cell for a batch of `tokens`: the capacity factor times the fair share of a piece, rounded up."""
    if config.capacity_factor is None:
        raise ValueError("capacity_factor = None is dropless: there are no cells")
    piece = -(-tokens // config.capacity_shards)
    return math.ceil(config.capacity_factor * piece * config.experts_per_token / config.experts)


def places(experts: Array, is_token: Array, config: ModelConfig, *, shards: int = 1) -> Places:
    """Give each choice [T, K] a row while there are some. Padding takes none.

    Args:
        shards: equal parts that the batch is split into, of which these tokens are one; each holds whole pieces.
    """
    tokens, chosen = experts.shape
    rows, pieces = cell_rows(config, tokens * shards), config.capacity_shards // shards
    piece_of_token = jnp.arange(tokens) // -(-tokens // pieces)
    cells = config.experts * pieces
    cell = jnp.where(is_token[:, None], experts * pieces + piece_of_token[:, None], cells).reshape(-1)
    order = jnp.argsort(cell, stable=True)
    sizes = jnp.bincount(cell, length=cells + 1)
    in_cell_sorted = jnp.arange(cell.size) - (jnp.cumsum(sizes) - sizes)[cell[order]]
    in_cell = jnp.zeros(cell.size, jnp.int32).at[order].set(in_cell_sorted.astype(jnp.int32), unique_indices=True)
    fits = (cell < cells) & (in_cell < rows)
    slot = jnp.where(fits, cell * rows + in_cell, cells * rows)
    return Places(slot.reshape(tokens, chosen).astype(jnp.int32), fits.reshape(tokens, chosen), pieces * rows)
