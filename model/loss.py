"""Next-token loss as sums, so that shards and microbatches add up to the whole batch exactly as one."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from model.architecture import ModelConfig
from model.batch import Batch
from model.cross_entropy import linear_cross_entropy, target_nats
from model.parameters import Params, declare, head_of
from model.router import RouterStats
from model.shards import WHOLE, Shards
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


def loss_sums(params: Params, router_bias: Array, config: ModelConfig, batch: Batch[Array], *, shards: Shards = WHOLE) -> LossSums:
    """Run the model on a batch and add up its loss.

    Inside a map over devices the loss sums are this shard's; router statistics cover all shards.
    """
    hidden, router = forward(params, router_bias, config, batch.tokens, batch.segment_ids, shards=shards)
    rows, head = hidden.reshape(-1, config.width), _head(params, config, shards).astype(hidden.dtype)
    targets, weights = batch.targets.reshape(-1), batch.loss_weights.reshape(-1)
    objective, nats, z = linear_cross_entropy(rows, head, targets, weights, config.z_loss, config.kernels)
    return LossSums(objective, nats, z, jnp.sum(weights), router)


def token_nats(params: Params, router_bias: Array, config: ModelConfig, batch: Batch[Array], *, shards: Shards = WHOLE) -> Array:
    """Negative log-likelihood of every target [batch, tokens] in nats, float32, whatever its weight; for evaluation."""
    hidden, _ = forward(params, router_bias, config, batch.tokens, batch.segment_ids, shards=shards)
    head = _head(params, config, shards).astype(hidden.dtype)
    nats = target_nats(hidden.reshape(-1, config.width), head, batch.targets.reshape(-1), config.kernels)
    return nats.reshape(batch.targets.shape)


def _head(params: Params, config: ModelConfig, shards: Shards) -> Array:
    """The output projection [width, vocab], whole."""
    name = "embedding" if config.tied_head else "head"
    return head_of({name: shards.gathered(declare(config)[name], params[name])})
