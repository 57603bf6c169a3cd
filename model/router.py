"""The router: which experts a token gets, with which weights, and what the batch's load teaches the next step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import ModelConfig
from model.balance import balanced_bias
from model.shards import Axes, total


class RouterStats(NamedTuple):
    """What routers did; of one layer here, with a leading [layers] axis when a whole model reports.

    Attributes:
        load: tokens per expert [E] float32 as the router chose, padding left out, over all shards.
        next_bias: selection bias of the next step [E] float32.
        entropy: of the load in nats, scalar; ln E when balanced.
        dropped: choices of tokens that found their expert full, scalar float32, over all shards; 0 without a capacity.
    """

    load: Array
    next_bias: Array
    entropy: Array
    dropped: Array


def route(
    x: Array, router: Array, router_bias: Array, config: ModelConfig, is_token: Array, *, axes: Axes
) -> tuple[Array, Array, RouterStats]:
    """Choose each token's top experts by biased score; weigh them by the affinity of the unbiased one, renormalised.

    Args:
        x: [T, width]. router: [width, E]. router_bias: [E], without gradient.
        is_token: [T] booleans; padding is routed like any token but balancing does not see it.
        axes: mapped axes over which statistics are taken.

    Returns:
        experts [T, K] int32, best first; combine weights [T, K] float32 that sum to router_combine_scale where they are
        renormalised; statistics.
    """
    operand = jnp.float32 if config.router_operands == "float32" else x.dtype
    scores = (x.astype(operand) @ router.astype(operand)).astype(jnp.float32)
    biased = jax.lax.stop_gradient(scores + router_bias)
    experts = jax.lax.top_k(biased, config.experts_per_token)[1]
    affinity = _affinity(scores, experts, config)
    whole = jnp.sum(affinity, axis=-1, keepdims=True) if config.router_renormalize else 1.0
    combine = config.router_combine_scale * affinity / whole

    load = total(jnp.sum(jax.nn.one_hot(experts, config.experts) * is_token[:, None, None], axis=(0, 1)), axes)
    share = load / jnp.maximum(jnp.sum(load), 1)
    entropy = -jnp.sum(jax.scipy.special.xlogy(share, share))
    if config.router_balancing == "quantile":
        next_bias = balanced_bias(jax.lax.stop_gradient(scores), biased, config, is_token, axes=axes)
    else:
        next_bias = router_bias
    return experts, combine, RouterStats(load, next_bias, entropy, jnp.zeros((), jnp.float32))


def _affinity(scores: Array, experts: Array, config: ModelConfig) -> Array:
    """How well a token fits each of its experts [T, K], between 0 and 1."""
    if config.router_affinity == "softmax":
        return jnp.take_along_axis(jax.nn.softmax(scores, axis=-1), experts, axis=-1)
    return jax.nn.sigmoid(jnp.take_along_axis(scores, experts, axis=-1))
