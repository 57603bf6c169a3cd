"""Experts of limited capacity: what finds room, what is dropped and counted, and what it would have been without a limit."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from model.architecture import ModelConfig
from model.balance import balanced_bias
from model.capacity import cell_rows, places
from model.experts import run_experts, run_in_cells
from tests.model import reference
from tests.model.layers import bank_of, choices, layer_of, narrow, run_layer
from tests.model.learner import CHEAP, bias, hidden_states, largest_difference, packed, variant, weights


def test_room_for_everybody_equals_dropless_forward_and_backward() -> None:
    config = narrow(capacity_factor=4.0)  # four experts, so a cell holds the whole batch
    x, leaves, router_bias = layer_of(config)

    def outcome(config: ModelConfig) -> Any:
        def loss(x: Array, leaves: dict[str, Array]) -> tuple[Array, Any]:
            y, stats = run_layer(config)(x, leaves, router_bias)
            return jnp.sum(y * jnp.sin(jnp.arange(y.size)).reshape(y.shape)), (y, stats)

        return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(x, leaves)

    ours, oracle = outcome(config), outcome(narrow(kernels={"moe_backend": "dense"}))
    assert largest_difference(ours, oracle) < 2e-6  # float32 sums in another order
    assert ours[1][1].dropped == 0


@pytest.mark.parametrize(("factor", "shards"), [(0.5, 1), (1.0, 1), (1.0, 5), (0.7, 3)])
def test_dropped_choices_add_nothing_and_are_counted(factor: float, shards: int) -> None:
    config = narrow(capacity_factor=factor, capacity_shards=shards)
    x, leaves, router_bias = layer_of(config)
    is_token = jnp.arange(x.shape[0]) % 4 != 1
    selected = choices("skewed", x.shape[0], config.experts, 2)
    combine = jax.random.uniform(jax.random.key(2), selected.shape)
    room = places(selected, is_token, config)
    ours = run_in_cells(x, bank_of(config.experts), room, combine)
    kept = jnp.where(room.fits, combine, 0.0)
    oracle = run_experts(x, bank_of(config.experts), selected, kept, narrow(kernels={"moe_backend": "dense"}).kernels)
    assert largest_difference(ours, oracle) < 2e-6
    np.testing.assert_array_equal(room.fits, _first_come(np.asarray(selected), np.asarray(is_token), config))
    _, stats = run_layer(config, is_token)(x, leaves, router_bias)
    assert np.any(~room.fits[is_token])
    assert np.sum(stats.load) - stats.dropped == np.sum(_fits_of_layer(config, x, leaves, router_bias, is_token))


def test_padding_takes_no_room() -> None:
    config = narrow(capacity_factor=1.0)
    selected = choices("even", 40, config.experts, 2)
    is_token = jnp.arange(40) >= 30
    assert cell_rows(config, 40) == 20
    room = places(selected, is_token, config)
    assert np.all(room.fits[30:])  # ten tokens could not fill a cell
    assert not np.any(room.fits[:30])
    slots = np.asarray(room.slot[30:]).ravel()
    assert len(set(slots.tolist())) == slots.size


def test_a_whole_model_with_capacity_equals_the_numpy_reference() -> None:
    config = variant(capacity_factor=0.75, capacity_shards=2, latent_width=12, router_affinity="softmax", kernels=CHEAP)
    params, router_bias, batch = weights(config), bias(config), packed(config, rows=1)
    ours = hidden_states(params, router_bias, config, batch.tokens, batch.segment_ids)
    theirs = reference.hidden_states(params, np.asarray(router_bias), config, np.asarray(batch.tokens), np.asarray(batch.segment_ids))
    assert np.max(np.abs(ours - theirs)) < 1e-5  # float32 rounding, through norms that amplify small activations


@pytest.mark.parametrize(
    ("factor", "shards", "published"), [(1.0, 1, 0.023), (1.25, 1, 0.0), (1.0, 64, 0.136), (1.25, 64, 0.050), (2.5, 64, 0.0)]
)
def test_a_balanced_router_drops_what_was_measured_elsewhere(factor: float, shards: int, published: float) -> None:
    config = variant(experts=64, experts_per_token=4, capacity_factor=factor, capacity_shards=shards)
    selected = _balanced_choices(config)
    room = places(selected, jnp.ones(len(selected), bool), config)
    assert float(jnp.mean(~room.fits)) == pytest.approx(published, abs=0.01)  # another draw of 8,192 tokens


def test_a_model_without_capacity_is_the_same_one() -> None:
    assert narrow(capacity_factor=1.0, capacity_shards=2).dropless.capacity_factor is None
    with pytest.raises(ValueError, match="there are no cells"):
        cell_rows(narrow(), 8)


def _first_come(selected: Any, is_token: Any, config: ModelConfig) -> Any:
    """Choices that find room, one by one."""
    tokens, piece, taken = len(selected), -(-len(selected) // config.capacity_shards), {}
    rows, fits = cell_rows(config, tokens), np.zeros(selected.shape, bool)
    for t, k in np.ndindex(*selected.shape):
        cell = (t // piece, int(selected[t, k]))
        if is_token[t] and taken.get(cell, 0) < rows:
            taken[cell] = taken.get(cell, 0) + 1
            fits[t, k] = True
    return fits


def _fits_of_layer(config: ModelConfig, x: Array, leaves: dict[str, Array], router_bias: Array, is_token: Array) -> Any:
    chosen = np.argsort(-np.asarray(x @ leaves["router"] + router_bias), axis=1)[:, : config.experts_per_token]
    return _first_come(chosen, np.asarray(is_token), config)


@functools.cache
def _balanced_choices(config: ModelConfig) -> Array:
    """8,192 tokens' choices by a skewed router after four updates of its bias."""
    rng = np.random.default_rng(0)
    preference, router_bias = rng.normal(size=config.experts) * 2, jnp.zeros(config.experts)
    selected = jnp.zeros((0, config.experts_per_token), jnp.int32)
    for _ in range(5):
        scores = jnp.asarray((rng.normal(size=(8192, config.experts)) + preference).astype(np.float32))
        selected = jax.lax.top_k(scores + router_bias, config.experts_per_token)[1]
        router_bias = balanced_bias(scores, scores + router_bias, config, jnp.ones(8192, bool), axes=())
    return selected
