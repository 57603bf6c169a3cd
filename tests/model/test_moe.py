"""Experts, router and balancing: back ends against the dense oracle, quantiles against sorting, shards against the whole."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array

from model.config import ModelConfig
from model.moe import RouterStats, balanced_bias, kth_largest, moe, route, run_experts
from tests.model.learner import largest_difference, variant

WIDTH, HIDDEN = 12, 10


def _bank(experts: int) -> tuple[Array, Array, Array]:
    keys = jax.random.split(jax.random.key(3), 3)
    gate, up = (jax.random.normal(key, (experts, WIDTH, HIDDEN)) for key in keys[:2])
    return gate, up, jax.random.normal(keys[2], (experts, HIDDEN, WIDTH))


def _choices(kind: str, tokens: int, experts: int, chosen: int) -> Array:
    """[tokens, chosen] distinct experts per token."""
    rng = np.random.default_rng(5)
    if kind == "one hot spot":
        return jnp.tile(jnp.arange(chosen), (tokens, 1))
    skew = rng.gumbel(size=(tokens, experts)) - (np.arange(experts) if kind == "skewed" else 0)
    return jnp.asarray(np.argsort(-skew, axis=1)[:, :chosen].astype(np.int32))


@pytest.mark.parametrize("kind", ["even", "skewed", "one hot spot"])
@pytest.mark.parametrize(("tokens", "experts", "chosen"), [(37, 5, 2), (3, 8, 1)])
def test_back_ends_equal_the_dense_oracle_forward_and_backward(kind: str, tokens: int, experts: int, chosen: int) -> None:
    x = jax.random.normal(jax.random.key(1), (tokens, WIDTH))
    combine = jax.random.uniform(jax.random.key(2), (tokens, chosen))
    selected = _choices(kind, tokens, experts, chosen)

    def outcome(backend: str) -> Any:
        config = variant(experts=experts, experts_per_token=chosen, kernels={"moe_backend": backend, "moe_block_rows": 4})

        def loss(x: Array, gate: Array, up: Array, down: Array, combine: Array) -> tuple[Array, Array]:
            y = run_experts(x, gate, up, down, selected, combine, config)
            return jnp.sum(y * jnp.sin(jnp.arange(y.size)).reshape(y.shape)), y

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3, 4), has_aux=True))(x, *_bank(experts), combine)

    oracle = outcome("dense")
    for backend in ("blocked", "ragged"):
        assert largest_difference(outcome(backend), oracle) < 2e-6  # of each array's largest entry: float32 sums in another order


@pytest.mark.parametrize("backend", ["dense", "blocked", "ragged"])
def test_renumbering_the_experts_changes_nothing_else(backend: str) -> None:
    config = variant(width=WIDTH, expert_width=HIDDEN, kernels={"moe_backend": backend})
    x, weights, bias = _layer(config)
    order = jnp.asarray([2, 0, 3, 1])
    renumbered = {name: a[order] if name.startswith("expert_") else a for name, a in weights.items()} | {
        "router": weights["router"][:, order]
    }
    y, stats = _run(config)(x, weights, bias)
    y_renumbered, stats_renumbered = _run(config)(x, renumbered, bias[order])
    assert largest_difference(y_renumbered, y) < 2e-6
    np.testing.assert_array_equal(stats_renumbered.load, stats.load[order])
    np.testing.assert_allclose(stats_renumbered.next_bias, stats.next_bias[order], atol=1e-6)


def test_combine_weights_sum_to_the_scale_and_ignore_the_bias() -> None:
    config = variant(width=WIDTH, router_combine_scale=2.5)
    x, weights, _ = _layer(config)
    is_token = jnp.ones(x.shape[0], bool)
    shift = jnp.asarray([0.0, 0.0, 0.0, 100.0])
    _, plain, _ = route(x, weights["router"], 0 * shift, config, is_token, data_axis=None)
    experts, forced, _ = route(x, weights["router"], shift, config, is_token, data_axis=None)
    np.testing.assert_allclose(jnp.sum(plain, axis=-1), 2.5, rtol=1e-6)
    assert np.all(experts[:, 0] == 3)  # the bias decides the choice
    scores = np.asarray(x @ weights["router"])
    affinity = 1 / (1 + np.exp(-np.take_along_axis(scores, np.asarray(experts), axis=1)))
    np.testing.assert_allclose(forced, 2.5 * affinity / affinity.sum(1, keepdims=True), rtol=1e-5)  # the score decides the weight


def test_the_router_bias_has_no_gradient() -> None:
    config = variant(width=WIDTH, expert_width=HIDDEN)
    x, weights, bias = _layer(config)
    gradient = jax.jit(jax.grad(lambda bias: jnp.sum(_run(config)(x, weights, bias)[0] ** 2)))(bias)
    assert np.array_equal(gradient, np.zeros(config.experts))


def test_padding_is_not_counted_and_does_not_vote() -> None:
    config = variant(width=WIDTH)
    x, weights, bias = _layer(config)
    is_token = jnp.arange(x.shape[0]) < 20
    _, _, stats = route(x, weights["router"], bias, config, is_token, data_axis=None)
    _, _, alone = route(x[:20], weights["router"], bias, config, is_token[:20], data_axis=None)
    assert np.sum(stats.load) == 20 * config.experts_per_token
    assert largest_difference(stats, alone) < 1e-6  # the same counts and the same order statistic


def test_only_padding_leaves_a_finite_bias() -> None:
    config = variant(width=WIDTH)
    x, weights, bias = _layer(config)
    _, _, stats = route(x, weights["router"], bias, config, jnp.zeros(x.shape[0], bool), data_axis=None)
    assert np.array_equal(stats.next_bias, np.zeros(config.experts))
    assert stats.entropy == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=32, allow_nan=False), min_size=12, max_size=12),
    st.integers(min_value=1, max_value=6),
)
def test_kth_largest_equals_sorting(values: list[float], k: int) -> None:
    columns = np.asarray(values, np.float32).reshape(6, 2)
    found = jax.jit(functools.partial(kth_largest, data_axis=None))(jnp.asarray(columns), jnp.int32(k))
    np.testing.assert_array_equal(found, np.sort(columns, axis=0)[::-1][k - 1])


def test_balancing_converges_from_a_strong_skew_in_three_updates() -> None:
    experts, chosen, tokens = 64, 4, 8192
    rng = np.random.default_rng(0)
    preference = rng.normal(size=experts) * 2
    bias = np.zeros(experts, np.float32)
    violations = []
    for _ in range(4):
        scores = (rng.normal(size=(tokens, experts)) + preference).astype(np.float32)
        biased = scores + bias
        load = np.bincount(np.argsort(-biased, axis=1)[:, :chosen].ravel(), minlength=experts)
        violations.append(load.max() / load.mean() - 1)
        bias = np.asarray(balanced_bias(jnp.asarray(scores), jnp.asarray(biased), chosen, jnp.ones(tokens, bool), data_axis=None))
    assert violations[0] > 5
    assert violations[3] <= 0.25  # what is left is the sampling noise of 512 tokens an expert
    assert abs(bias.mean()) < 1e-5


def test_quantile_bias_equals_its_definition_by_sorting() -> None:
    rng = np.random.default_rng(1)
    scores, bias = rng.normal(size=(50, 8)).astype(np.float32), rng.normal(size=8).astype(np.float32)
    biased = scores + bias
    cutoff = np.sort(biased, axis=1)[:, -3]  # the third best of two chosen
    margins = np.sort(scores - cutoff[:, None], axis=0)[::-1]
    expected = -margins[50 * 2 // 8 - 1]
    ours = balanced_bias(jnp.asarray(scores), jnp.asarray(biased), 2, jnp.ones(50, bool), data_axis=None)
    np.testing.assert_allclose(ours, expected - expected.mean(), atol=1e-6)


def test_router_statistics_of_shards_are_those_of_the_whole() -> None:
    config = variant(width=WIDTH)
    x, weights, bias = _layer(config)
    is_token = jnp.arange(x.shape[0]) % 5 != 0

    def statistics(x: Array, is_token: Array, data_axis: str | None) -> RouterStats:
        return route(x, weights["router"], bias, config, is_token, data_axis=data_axis)[2]

    whole = statistics(x, is_token, None)
    # vmap names the axis as shard_map does, without needing devices.
    per_shard: Callable[[Array, Array], RouterStats] = functools.partial(statistics, data_axis="data")
    stats = jax.vmap(per_shard, axis_name="data")(x.reshape(4, -1, WIDTH), is_token.reshape(4, -1))
    for shard in range(4):
        assert largest_difference(jax.tree.map(lambda a, i=shard: a[i], stats), whole) < 1e-6


def _layer(config: ModelConfig) -> tuple[Array, dict[str, Array], Array]:
    keys = iter(jax.random.split(jax.random.key(9), 8))
    gate, up, down = _bank(config.experts)
    shared = {f"shared_{name}": jax.random.normal(next(keys), shape) for name, shape in _shared_shapes(config).items()}
    weights = {"router": jax.random.normal(next(keys), (WIDTH, config.experts)), "expert_gate": gate, "expert_up": up, "expert_down": down}
    return jax.random.normal(next(keys), (40, WIDTH)), weights | shared, jax.random.normal(next(keys), (config.experts,))


def _shared_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    inward = (WIDTH, config.shared_expert_width)
    return {"gate": inward, "up": inward, "down": inward[::-1]}


def _run(config: ModelConfig) -> Any:
    return jax.jit(lambda x, weights, bias: moe(x, weights, bias, config, jnp.ones(x.shape[0], bool), data_axis=None))
