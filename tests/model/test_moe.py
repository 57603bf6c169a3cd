"""A whole MoE layer: experts in a latent width, and banks that layers share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from model.parameters import BANK, Params, count, declare
from model.transformer import forward
from tests.model.layers import WIDTH, layer_of, narrow, run_layer
from tests.model.learner import CHEAP, bias, largest_difference, packed, variant, weights


def test_a_latent_of_full_width_with_identity_maps_is_the_plain_layer() -> None:
    plain, latent = narrow(), narrow(latent_width=WIDTH, latent_norm=False)
    x, leaves, router_bias = layer_of(plain)
    maps = {"latent_down": jnp.eye(WIDTH), "latent_up": jnp.eye(WIDTH)}
    ours, stats = run_layer(latent)(x, leaves | maps, router_bias)
    theirs, plain_stats = run_layer(plain)(x, leaves, router_bias)
    assert largest_difference(ours, theirs) < 1e-6
    assert largest_difference(stats, plain_stats) == 0


def test_a_latent_of_half_the_width_halves_what_is_sent_to_experts() -> None:
    full, half = variant(), variant(latent_width=16)
    sent = {config: declare(config)["layers"]["moe"]["expert_up"].shape[-2] for config in (full, half)}
    assert sent[full] == 2 * sent[half] == full.width
    # Router and shared experts keep the full width.
    assert [declare(half)["layers"]["moe"][name].shape[-2] for name in ("router", "shared_up")] == [32, 32]


def test_the_latent_norm_takes_the_projections_scale_away() -> None:
    config = narrow(latent_width=6, shared_expert_width=0, shared_experts=0)
    x, leaves, router_bias = layer_of(config)
    keys = jax.random.split(jax.random.key(4), 2)
    maps = {
        "latent_down": jax.random.normal(keys[0], (WIDTH, 6)),
        "latent_up": jax.random.normal(keys[1], (6, WIDTH)),
        "latent_gain": jnp.ones(6),
    }
    small = maps | {"latent_down": 0.5 * maps["latent_down"]}
    outputs = [run_layer(config)(x, leaves | chosen, router_bias)[0] for chosen in (maps, small)]
    assert largest_difference(*outputs) < 1e-4  # the norm's epsilon beside activations of order one


def test_the_gradient_of_a_shared_bank_is_the_sum_of_its_layers_gradients() -> None:
    tied, untied = (variant(layers=4, expert_tying_layers=tying, kernels=CHEAP) for tying in (2, 1))
    params = weights(tied)
    moe = params["layers"]["moe"]
    copied = params | {
        "layers": params["layers"] | {"moe": moe | {name: jnp.repeat(moe[name], 2, axis=0) for name in BANK}},
    }
    ours, theirs = _gradient(tied, params), _gradient(untied, copied)
    for name in BANK:
        summed = theirs["layers"]["moe"][name].reshape(2, 2, *moe[name].shape[1:]).sum(axis=1)
        assert largest_difference(ours["layers"]["moe"][name], summed) < 1e-6
        ours["layers"]["moe"][name] = theirs["layers"]["moe"][name] = 0
    assert largest_difference(ours, theirs) < 1e-5  # of each leaf's largest entry; the other leaves see the same forward pass


def test_a_shared_bank_is_held_once_and_multiplied_with_by_each_layer() -> None:
    tied, untied = count(variant(layers=4, expert_tying_layers=2)), count(variant(layers=4))
    assert 2 * tied.routed_expert == untied.routed_expert
    assert tied.active == untied.active


def _gradient(config: Any, params: Params) -> Any:
    batch, router_bias = packed(config), bias(config)

    def readout(params: Params) -> Array:
        hidden, _ = forward(params, router_bias, config, batch.tokens, batch.segment_ids)
        return jnp.sum(hidden * np.arange(config.width))

    return jax.jit(jax.grad(readout))(params)
