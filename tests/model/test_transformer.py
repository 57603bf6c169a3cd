"""The decoder against an independent numpy forward pass, and what must never leak through it."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from model.batch import Batch
from model.config import ModelConfig
from model.loss import token_nats
from model.moe import RouterStats
from model.parameters import Params
from model.transformer import forward
from tests.model import reference
from tests.model.learner import CHEAP, bias, hidden_states, largest_difference, packed, variant, weights

EVERYTHING: dict[str, Any] = {"norm_gate_rank": 4, "attention_gate": True, "exclusive_attention": True}


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(variant(), id="plain"),
        pytest.param(variant(**EVERYTHING), id="all gates"),
        pytest.param(variant(window_tokens=None, rope_layers="all", rope_fraction=1.0), id="global with full rotation"),
        pytest.param(variant(shared_expert_width=0, qk_norm=False, experts_per_token=1), id="one expert, none shared"),
    ],
)
def test_hidden_states_equal_the_numpy_reference(config: ModelConfig) -> None:
    params, router_bias, batch = weights(config), bias(config), packed(config)
    ours = hidden_states(params, router_bias, config, batch.tokens, batch.segment_ids)
    theirs = reference.hidden_states(params, np.asarray(router_bias), config, np.asarray(batch.tokens), np.asarray(batch.segment_ids))
    assert np.max(np.abs(ours - theirs)) < 2e-5  # float32 rounding, values up to 5, through norms that amplify small activations


def test_token_losses_equal_the_numpy_reference() -> None:
    config = variant(vocab_size=50, kernels={"loss_chunk_tokens": 13})
    params, router_bias, batch = weights(config), bias(config), packed(config)
    ours = jax.jit(token_nats, static_argnums=2)(params, router_bias, config, batch)
    numpy = [np.asarray(a) for a in (router_bias, batch.tokens, batch.segment_ids, batch.targets)]
    theirs = reference.nats(params, numpy[0], config, *numpy[1:])
    assert np.max(np.abs(ours - theirs)) < 2e-5  # hidden states' 1e-5, through logits of several nats


@pytest.mark.parametrize("moe_backend", ["dense", "blocked", "ragged"])
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


def test_scanned_unrolled_and_recomputed_layers_agree() -> None:
    unrolled = variant(layers=3, kernels=CHEAP)  # one period of two and one layer more
    params, router_bias, batch = weights(unrolled), bias(unrolled), packed(unrolled)
    expected, expected_stats = _gradient_and_stats(params, router_bias, unrolled, batch)
    for recompute in (False, True):
        scanned = variant(layers=3, kernels=CHEAP | {"layer_loop": "scan", "rematerialize_layers": recompute})
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
