"""The mixture of experts of a layer: router, routed experts (perhaps in a narrower latent width, perhaps of limited capacity),
and the shared ones.

Dropless unless the model has a capacity factor: each token gets all of its experts, however uneven the choice.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import ModelConfig
from model.capacity import Places, places
from model.expert_parallel import rows_between, run_apart
from model.experts import Bank, run_experts, run_in_cells
from model.norm import rms
from model.router import RouterStats, route
from model.shards import WHOLE, Shards, total


def moe(
    x: Array, weights: Mapping[str, Array], router_bias: Array, config: ModelConfig, is_token: Array, *, shards: Shards = WHOLE
) -> tuple[Array, RouterStats]:
    """Routed experts plus the shared ones.

    Args:
        x: [T, width], already normalised.
        weights: this layer's leaves of `layers/moe`, its bank among them.
        router_bias: [E]; moves the choice, never the weight, and has no gradient.
        is_token: [T] booleans; padding is routed like any token, but balancing does not see it and it takes no capacity.
        shards: devices that the batch is split over, these tokens being one's; statistics are taken over all of them, and experts
            may live on several.

    Returns:
        [T, width] in x's dtype, and the layer's statistics.
    """
    experts, combine, stats = route(x, weights["router"], router_bias, config, is_token, axes=shards.axes)
    bank = Bank(*(weights[name].astype(x.dtype) for name in ("expert_gate", "expert_up", "expert_down")))
    inner = _to_latent(x, weights, config)
    room = None
    if config.capacity_factor is not None:
        room = places(experts, is_token, config, shards=shards.count)
        stats = stats._replace(dropped=total(jnp.sum(~room.fits & is_token[:, None]).astype(jnp.float32), shards.axes))
    routed = _routed(inner, bank, experts, combine, room, config, shards)
    if "latent_up" in weights:
        routed = routed @ weights["latent_up"].astype(x.dtype)
    if "shared_gate" not in weights:
        return routed, stats
    return routed + _shared(x, weights), stats


def _routed(x: Array, bank: Bank, experts: Array, combine: Array, room: Places | None, config: ModelConfig, shards: Shards) -> Array:
    if shards.experts > 1:
        chosen = experts if room is None else jnp.where(room.fits, experts, config.experts)
        cells = None if room is None else room.slots_per_expert
        most = rows_between(x.shape[0], config.experts_per_token, bank.gate.shape[0], cells)
        return run_apart(x, bank, chosen, combine, config.kernels, shards, most=most)
    if room is None:
        return run_experts(x, bank, experts, combine, config.kernels)
    return run_in_cells(x, bank, room, combine)


def _to_latent(x: Array, weights: Mapping[str, Array], config: ModelConfig) -> Array:
    """What routed experts read: x, or its normalised projection (arXiv 2601.18089)."""
    if "latent_down" not in weights:
        return x
    narrow = x @ weights["latent_down"].astype(x.dtype)
    return (rms(narrow, config.norm_eps) * weights["latent_gain"]).astype(x.dtype) if config.latent_norm else narrow


def _shared(x: Array, weights: Mapping[str, Array]) -> Array:
    """Every shared expert on every token, summed."""
    gate, up, down = (weights[name].astype(x.dtype) for name in ("shared_gate", "shared_up", "shared_down"))
    hidden = jax.nn.silu(jnp.einsum("td,ndf->ntf", x, gate)) * jnp.einsum("td,ndf->ntf", x, up)
    return jnp.einsum("ntf,nfd->td", hidden, down)
