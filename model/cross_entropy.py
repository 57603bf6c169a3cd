"""Cross-entropy of a linear head, never with all logits at one time: in blocks over tokens, or in blocks over the vocabulary.

Over tokens, gradients are made in the forward pass, where the logits are: three products in all. Over the vocabulary the rows
stay whole and the log-partition is gathered block by block, so the backward pass needs the logits again: four products, and no
float32 gradient of the head is carried through every block. Which is faster is measured (`python -m model.bench`).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import KernelConfig


def linear_cross_entropy(
    rows: Array, head: Array, targets: Array, weights: Array, z_loss: float, kernels: KernelConfig
) -> tuple[Array, Array, Array]:
    """Cross-entropy of `rows @ head`, by the blocks that are named.

    Args:
        rows: [T, width]. head: [width, V]. targets: [T] int32. weights: [T] float32.

    Returns:
        (objective, nats, z) sums, float32 scalars: objective = nats + z_loss * z. Only the objective has a gradient, for rows
        and head.
    """
    match kernels.loss_blocks:
        case "tokens":
            return over_tokens(rows, head, targets, weights, z_loss, kernels.loss_chunk_tokens)
        case "vocabulary":
            return over_vocabulary(rows, head, targets, weights, z_loss, kernels.loss_block_vocabulary)


def target_nats(rows: Array, head: Array, targets: Array, kernels: KernelConfig) -> Array:
    """Negative log-likelihood of each target [T], float32; without a gradient."""
    if kernels.loss_blocks == "vocabulary":
        log_partition, target_logits = _gather_partition(rows, head, targets, kernels.loss_block_vocabulary)
        return log_partition - target_logits
    chunks = _chunked(kernels.loss_chunk_tokens, rows, targets)

    def nats_of(chunk: tuple[Array, Array]) -> Array:
        return _statistics(chunk[0], head, chunk[1])[1]

    nats: Array = jax.lax.map(nats_of, chunks)
    return nats.reshape(-1)[: targets.size]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def over_tokens(rows: Array, head: Array, targets: Array, weights: Array, z_loss: float, chunk_tokens: int) -> tuple[Array, Array, Array]:
    """As `linear_cross_entropy`, with the logits of `chunk_tokens` tokens at one time; T need not be a multiple."""
    nats, z = _sum_chunks(rows, head, targets, weights, chunk_tokens)
    return nats + z_loss * z, nats, z


def _sum_chunks(rows: Array, head: Array, targets: Array, weights: Array, chunk_tokens: int) -> tuple[Array, Array]:
    def add(sums: tuple[Array, Array], chunk: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        rows, targets, weights = chunk
        _, nats, log_partition = _statistics(rows, head, targets)
        return (sums[0] + jnp.sum(weights * nats), sums[1] + jnp.sum(weights * log_partition**2)), None

    zero = 0 * jnp.sum(weights)  # varies over shards as the sums will
    sums, _ = jax.lax.scan(add, (zero, zero), _chunked(chunk_tokens, rows, targets, weights))
    return sums


def _forward_with_gradients(
    rows: Array, head: Array, targets: Array, weights: Array, z_loss: float, chunk_tokens: int
) -> tuple[tuple[Array, Array, Array], tuple[Array, Array]]:
    def add(carry: tuple[Array, Array, Array], chunk: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array, Array], Array]:
        nats_sum, z_sum, head_gradient = carry
        rows, targets, weights = chunk
        logits = jnp.matmul(rows, head, preferred_element_type=jnp.float32)
        highest = jnp.max(logits, axis=1)
        risen = jnp.exp(logits - highest[:, None])  # once, for the partition and its slope: it is what a CPU spends beside the products
        total = jnp.sum(risen, axis=1)
        log_partition = highest + jnp.log(total)
        nats = log_partition - jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
        pull = weights * (1 + 2 * z_loss * log_partition)
        is_target = jnp.arange(head.shape[1])[None] == targets[:, None]  # fuses into what reads it; a scatter is a pass of its own
        slope = (risen * (pull / total)[:, None] - jnp.where(is_target, weights[:, None], 0)).astype(rows.dtype)
        rows_gradient = jnp.matmul(slope, head.T, preferred_element_type=jnp.float32).astype(rows.dtype)
        head_gradient = head_gradient + jnp.matmul(rows.T, slope, preferred_element_type=jnp.float32)
        carry = nats_sum + jnp.sum(weights * nats), z_sum + jnp.sum(weights * log_partition**2), head_gradient
        return carry, rows_gradient

    zero = 0 * jnp.sum(weights)
    start = (zero, zero, jnp.zeros(head.shape, jnp.float32) + zero)
    (nats, z, head_gradient), rows_gradient = jax.lax.scan(add, start, _chunked(chunk_tokens, rows, targets, weights))
    gradients = rows_gradient.reshape(-1, rows.shape[-1])[: rows.shape[0]], head_gradient.astype(head.dtype)
    return (nats + z_loss * z, nats, z), gradients


def _scale_gradients(
    z_loss: float, chunk_tokens: int, gradients: tuple[Array, Array], cotangents: tuple[Array, Array, Array]
) -> tuple[Array, Array, None, None]:
    del z_loss, chunk_tokens
    rows, head = (g * cotangents[0].astype(g.dtype) for g in gradients)
    return rows, head, None, None


over_tokens.defvjp(_forward_with_gradients, _scale_gradients)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def over_vocabulary(
    rows: Array, head: Array, targets: Array, weights: Array, z_loss: float, block_vocabulary: int
) -> tuple[Array, Array, Array]:
    """As `linear_cross_entropy`, with the logits of all tokens for `block_vocabulary` entries at one time; V need not be a multiple."""
    sums, _ = _gathered_forward(rows, head, targets, weights, z_loss, block_vocabulary)
    return sums


Residuals = tuple[Array, Array, Array, Array, Array]


def _gathered_forward(
    rows: Array, head: Array, targets: Array, weights: Array, z_loss: float, block_vocabulary: int
) -> tuple[tuple[Array, Array, Array], Residuals]:
    log_partition, target_logits = _gather_partition(rows, head, targets, block_vocabulary)
    nats, z = jnp.sum(weights * (log_partition - target_logits)), jnp.sum(weights * log_partition**2)
    return (nats + z_loss * z, nats, z), (rows, head, targets, weights, log_partition)


def _block_gradients(
    z_loss: float, block_vocabulary: int, residuals: Residuals, cotangents: tuple[Array, Array, Array]
) -> tuple[Array, Array, None, None]:
    rows, head, targets, weights, log_partition = residuals
    pulled = weights * cotangents[0]
    slope_of_partition = pulled * (1 + 2 * z_loss * log_partition)
    size = min(block_vocabulary, head.shape[1])

    def add(carry: tuple[Array, Array], first: Array) -> tuple[tuple[Array, Array], None]:
        rows_gradient, head_gradient = carry
        start, logits, block = _block(rows, head, first, size)
        slope = jnp.exp(logits - log_partition[:, None]) * slope_of_partition[:, None]
        place, is_here = _place(targets, first, start, size)
        slope = slope.at[jnp.arange(targets.size), place].add(jnp.where(is_here, -pulled, 0)).astype(rows.dtype)
        rows_gradient = rows_gradient + jnp.matmul(slope, block.T, preferred_element_type=jnp.float32)
        block_gradient = jnp.matmul(rows.T, slope, preferred_element_type=jnp.float32).astype(head.dtype)
        repeated = (start + jnp.arange(size) < first)[None]  # the last block may begin inside its neighbour, whose gradient stands
        standing = jax.lax.dynamic_slice_in_dim(head_gradient, start, size, axis=1)
        block_gradient = jnp.where(repeated, standing, block_gradient)
        return (rows_gradient, jax.lax.dynamic_update_slice_in_dim(head_gradient, block_gradient, start, axis=1)), None

    zero = 0 * jnp.sum(pulled)  # varies over shards as the gradients will
    carry = jnp.zeros(rows.shape, jnp.float32) + zero, jnp.zeros(head.shape, head.dtype) + zero.astype(head.dtype)
    (rows_gradient, head_gradient), _ = jax.lax.scan(add, carry, jnp.arange(0, head.shape[1], size))
    return rows_gradient.astype(rows.dtype), head_gradient, None, None


over_vocabulary.defvjp(_gathered_forward, _block_gradients)


def _gather_partition(rows: Array, head: Array, targets: Array, block_vocabulary: int) -> tuple[Array, Array]:
    """Log-partitions [T] and target logits [T], float32: a running maximum, the sum of exponentials below it, and what was hit."""
    size = min(block_vocabulary, head.shape[1])

    def add(carry: tuple[Array, Array, Array], first: Array) -> tuple[tuple[Array, Array, Array], None]:
        highest, total, hit = carry
        start, logits, _ = _block(rows, head, first, size)
        place, is_here = _place(targets, first, start, size)
        hit = hit + jnp.where(is_here, jnp.take_along_axis(logits, place[:, None], axis=1)[:, 0], 0)
        above = jnp.maximum(highest, jnp.max(logits, axis=1))
        total = total * jnp.exp(highest - above) + jnp.sum(jnp.exp(logits - above[:, None]), axis=1)
        return (above, total, hit), None

    zero = 0 * rows[:, 0].astype(jnp.float32)  # varies over shards as the rows do
    (highest, total, hit), _ = jax.lax.scan(add, (zero - jnp.inf, zero, zero), jnp.arange(0, head.shape[1], size))
    return highest + jnp.log(total), hit


def _block(rows: Array, head: Array, first: Array, size: int) -> tuple[Array, Array, Array]:
    """Where a block begins (V - size at most), its logits [T, size] float32, -inf for entries before `first`, and its part of the head."""
    start = jnp.minimum(first, head.shape[1] - size)
    block = jax.lax.dynamic_slice_in_dim(head, start, size, axis=1)
    logits = jnp.matmul(rows, block, preferred_element_type=jnp.float32)
    return start, jnp.where((start + jnp.arange(size) >= first)[None], logits, -jnp.inf), block


def _place(targets: Array, first: Array, start: Array, size: int) -> tuple[Array, Array]:
    """Each target's column in a block, and whether it belongs to it."""
    return jnp.clip(targets - start, 0, size - 1), (targets >= first) & (targets < start + size)


def _statistics(rows: Array, head: Array, targets: Array) -> tuple[Array, Array, Array]:
    """Logits [T, V], negative log-likelihoods [T] and log-partitions [T] of a chunk, float32."""
    logits = jnp.matmul(rows, head, preferred_element_type=jnp.float32)
    log_partition = jax.nn.logsumexp(logits, axis=-1)
    return logits, log_partition - jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0], log_partition


def _chunked(chunk_tokens: int, *arrays: Array) -> Any:
    """Arrays over T tokens as [chunks, tokens, ...], filled up with zeros: weight 0, so they add nothing."""
    tokens = arrays[0].shape[0]
    chunk = min(chunk_tokens, tokens)
    missing = -tokens % chunk
    return tuple(jnp.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1)).reshape(-1, chunk, *a.shape[1:]) for a in arrays)
