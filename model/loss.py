"""Next-token loss as sums, so that shards and microbatches add up to the whole batch exactly as one."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import ModelConfig
from model.batch import Batch
from model.parameters import Params, head_of
from model.router import RouterStats
from model.transformer import forward


class LossSums(NamedTuple):
    """Sums over a batch, float32 scalars. Divide by `weight_sum` over all shards and microbatches, once.

    Attributes:
        objective_sum: what training minimises, nats_sum + z_loss * z_sum; the only one that carries a gradient.
        nats_sum: weighted negative log-likelihood.
        z_sum: weighted squared log-partition.
        weight_sum: sum of the loss weights.
        router: router statistics, every field with a leading [layers] axis.
    """

    objective_sum: Array
    nats_sum: Array
    z_sum: Array
    weight_sum: Array
    router: RouterStats


def loss_sums(params: Params, router_bias: Array, config: ModelConfig, batch: Batch[Array], *, data_axis: str | None = None) -> LossSums:
    """Run the model on a batch and add up its loss.

    Inside a `shard_map` over `data_axis` the loss sums are this shard's; router statistics cover all shards.
    """
    hidden, router = forward(params, router_bias, config, batch.tokens, batch.segment_ids, data_axis=data_axis)
    rows, head = hidden.reshape(-1, config.width), head_of(params).astype(hidden.dtype)
    targets, weights = batch.targets.reshape(-1), batch.loss_weights.reshape(-1)
    chunk = config.kernels.loss_chunk_tokens
    objective, nats, z = linear_cross_entropy(rows, head, targets, weights, config.z_loss, chunk)
    return LossSums(objective, nats, z, jnp.sum(weights), router)


def token_nats(params: Params, router_bias: Array, config: ModelConfig, batch: Batch[Array]) -> Array:
    """Negative log-likelihood of every target [batch, tokens] in nats, float32, whatever its weight; for evaluation."""
    hidden, _ = forward(params, router_bias, config, batch.tokens, batch.segment_ids)
    head = head_of(params).astype(hidden.dtype)
    rows, targets = _chunked(config.kernels.loss_chunk_tokens, hidden.reshape(-1, config.width), batch.targets.reshape(-1))

    def nats_of(chunk: tuple[Array, Array]) -> Array:
        return _statistics(chunk[0], head, chunk[1])[1]

    nats: Array = jax.lax.map(nats_of, (rows, targets))
    return nats.reshape(-1)[: batch.targets.size].reshape(batch.targets.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def linear_cross_entropy(
    rows: Array, head: Array, targets: Array, weights: Array, z_loss: float, chunk_tokens: int
) -> tuple[Array, Array, Array]:
    """Cross-entropy of `rows @ head`, a chunk of tokens at a time; all logits never exist together.

    Args:
        rows: [T, width]. head: [width, V]. targets: [T] int32. weights: [T] float32.
        chunk_tokens: tokens whose logits exist at one time; T need not be a multiple.

    Returns:
        (objective, nats, z) sums, float32 scalars. Only the objective has a gradient, for rows and head; it is made in the
        forward pass, chunk by chunk, because the logits it needs are there.
    """
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
        logits, nats, log_partition = _statistics(rows, head, targets)
        pull = weights * (1 + 2 * z_loss * log_partition)
        slope = jnp.exp(logits - log_partition[:, None]) * pull[:, None]
        slope = slope.at[jnp.arange(targets.size), targets].add(-weights).astype(rows.dtype)
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


linear_cross_entropy.defvjp(_forward_with_gradients, _scale_gradients)


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
