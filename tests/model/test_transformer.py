"""The decoder against an independent numpy forward pass, and what must never leak through it."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from model.architecture import ModelConfig
from model.batch import Batch
from model.loss import token_nats
from model.parameters import Params
from model.router import RouterStats
from model.transformer import forward
from tests.model import reference
from tests.model.learner import CHEAP, bias, hidden_states, largest_difference, packed, variant, weights

MECHANISMS: dict[str, dict[str, Any]] = {
    "norm gate": {"norm_gate_rank": 4},
    "head gate": {"attention_gate": True},
    "exclusive attention": {"exclusive_attention": True},
    "key offset": {"partial_key_offset": True},
    "convolution": {"convolution_taps": 3},
    "convolution of keys": {"convolution_taps": 4, "convolution_sites": ("key",)},
    "two shared experts": {"shared_experts": 2, "shared_expert_width": 8},
    "latent experts": {"latent_width": 12},
    "latent experts without norm": {"latent_width": 12, "latent_norm": False},
    "tied experts": {"layers": 4, "expert_tying_layers": 2},
    "tied head": {"tied_head": True},
    "weights not renormalised": {"router_renormalize": False},
    "interleaved rotation": {"rope_pairing": "interleaved"},
    "queries per head of their own": {"kv_heads": 4},
    "one key for all heads": {"kv_heads": 1},
    "no norm of queries and keys": {"qk_norm": False, "qk_scale": 0.3},  # else scores of tens, whose rounding a softmax enlarges
    "no shared expert": {"shared_experts": 0, "shared_expert_width": 0},
    "global with full rotation": {"window_tokens": None, "rope_layers": "all", "rope_fraction": 1.0},
    "windows alone": {"global_every": None},
}
"""Each on its own over the plain tiny model."""

EVERYTHING: dict[str, Any] = {
    **{name: value for mechanism in list(MECHANISMS.values())[:5] for name, value in mechanism.items()},
    **{"shared_experts": 2, "latent_width": 12, "layers": 4, "expert_tying_layers": 2},
}


@pytest.mark.parametrize("changes", [{}, *MECHANISMS.values(), EVERYTHING], ids=["plain", *MECHANISMS, "everything"])
def test_hidden_states_equal_the_numpy_reference(changes: dict[str, Any]) -> None:
    config = variant(**changes, kernels=CHEAP)
    params, router_bias, batch = weights(config), bias(config), packed(config)
    ours = hidden_states(params, router_bias, config, batch.tokens, batch.segment_ids)
    theirs = reference.hidden_states(params, np.asarray(router_bias), config, np.asarray(batch.tokens), np.asarray(batch.segment_ids))
    assert np.max(np.abs(ours - theirs)) < 1e-5  # float32 rounding, values up to 7, through norms that amplify small activations


@pytest.mark.parametrize("tied_head", [False, True])
def test_token_losses_equal_the_numpy_reference(tied_head: bool) -> None:
    config = variant(vocab_size=50, tied_head=tied_head, kernels={"loss_chunk_tokens": 13})
    params, router_bias, batch = weights(config), bias(config), packed(config)
    ours = jax.jit(token_nats, static_argnums=2)(params, router_bias, config, batch)
    numpy = [np.asarray(a) for a in (router_bias, batch.tokens, batch.segment_ids, batch.targets)]
    theirs = reference.nats(params, numpy[0], config, *numpy[1:])
    assert np.max(np.abs(ours - theirs)) < 1e-5  # float32 rounding of losses up to 13 nats


@pytest.mark.parametrize("moe_backend", ["dense", "looped", "blocked", "ragged"])
def test_a_document_never_sees_another_one_in_its_row(moe_backend: str) -> None:
    config = variant(**EVERYTHING, kernels={"moe_backend": moe_backend})
    params, router_bias, tokens = weights(config), bias(config), packed(config, rows=1).tokens
    segment_ids = jnp.asarray([[0] * 7 + [1] * 9])
    other = tokens.at[:, :7].set((tokens[:, :7] + 5) % config.vocab_size)
    first, second = (hidden_states(params, router_bias, config, t, segment_ids) for t in (tokens, other))
    assert np.max(np.abs(first - second)[:, 7:]) == 0
    assert np.max(np.abs(first - second)[:, :7]) > 0.1


def test_a_position_never_sees_a_later_one() -> None:
    config = variant(**EVERYTHING)
    params, router_bias, tokens = weights(config), bias(config), packed(config, rows=1).tokens
    segment_ids = jnp.zeros((1, 16), jnp.int32)
    later = tokens.at[:, 10].set((tokens[:, 10] + 1) % config.vocab_size)
    first, second = (hidden_states(params, router_bias, config, t, segment_ids) for t in (tokens, later))
    difference = np.max(np.abs(first - second), axis=-1)[0]
    assert np.all(difference[:10] == 0)
    assert np.all(difference[10:] > 0)


def test_two_windowed_layers_reach_two_windows_and_no_further() -> None:
    config = variant(layers=2, window_tokens=4, global_every=None, kernels=CHEAP)
    params, tokens = weights(config), jnp.arange(16)[None]  # every position its own token, so rows of the embedding are positions

    def readout(embedding: Array) -> Array:
        hidden, _ = forward(params | {"embedding": embedding}, bias(config), config, tokens, jnp.zeros((1, 16), jnp.int32))
        return jnp.sum(hidden[0, 15] * jnp.arange(config.width))

    gradient = jax.jit(jax.grad(readout))(params["embedding"])
    assert list(np.flatnonzero(np.any(gradient != 0, axis=-1))) == list(range(15 - 2 * 3, 16))


@pytest.mark.parametrize(
    ("changes", "recompute"),  # a period is scanned either way; the banks' layouts are scanned and recomputed in one
    [
        pytest.param({"layers": 3}, False, id="one period of two and one layer more"),
        pytest.param({"layers": 3}, True, id="the same, recomputed"),
        pytest.param({"layers": 8, "global_every": 2, "expert_tying_layers": 4}, True, id="banks longer than the cadence"),
        pytest.param({"layers": 6, "global_every": 3, "expert_tying_layers": 2}, True, id="banks across the cadence"),
    ],
)
def test_scanned_unrolled_and_recomputed_layers_agree(changes: dict[str, Any], recompute: bool) -> None:
    unrolled = variant(**changes, kernels=CHEAP)
    params, router_bias, batch = weights(unrolled), bias(unrolled), packed(unrolled)
    scanned = variant(**changes, kernels=CHEAP | {"layer_loop": "scan", "rematerialize_layers": recompute})
    expected, expected_stats = _gradient_and_stats(params, router_bias, unrolled, batch)
    gradient, stats = _gradient_and_stats(params, router_bias, scanned, batch)
    assert largest_difference(gradient, expected) < 1e-5  # the same operations, fused differently
    assert largest_difference(stats, expected_stats) < 1e-5


def test_bfloat16_stays_near_float32() -> None:
    all_chosen: dict[str, Any] = {"experts_per_token": 4, "router_balancing": "none"}  # rounding can't flip a choice
    config = variant(**all_chosen, kernels=CHEAP)
    params, router_bias, batch = weights(config), bias(config), packed(config)
    exact = hidden_states(params, router_bias, config, batch.tokens, batch.segment_ids)
    rough = variant(**all_chosen, kernels=CHEAP | {"compute_dtype": "bfloat16"})
    rounded = hidden_states(params, router_bias, rough, batch.tokens, batch.segment_ids)
    assert rounded.dtype == jnp.bfloat16
    assert 0 < np.sqrt(np.mean((rounded.astype(jnp.float32) - exact) ** 2)) < 0.1  # 8 bits of mantissa, values around 1


@functools.partial(jax.jit, static_argnums=2)
def _gradient_and_stats(params: Params, router_bias: Array, config: ModelConfig, batch: Batch[Array]) -> tuple[Params, RouterStats]:
    def readout(params: Params) -> tuple[Array, RouterStats]:
        hidden, stats = forward(params, router_bias, config, batch.tokens, batch.segment_ids)
        return jnp.sum(hidden * jnp.arange(config.width)), stats

    outcome: tuple[Params, RouterStats] = jax.grad(readout, has_aux=True)(params)
    return outcome
