"""The router: who is chosen, with which weights, and what shards of a batch say together."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from model.router import RouterStats, route
from model.shards import Axes
from tests.model.layers import WIDTH, layer_of, narrow, run_layer
from tests.model.learner import largest_difference


def test_combine_weights_sum_to_the_scale_and_ignore_the_bias() -> None:
    config = narrow(router_combine_scale=2.5)
    x, weights, _ = layer_of(config)
    is_token = jnp.ones(x.shape[0], bool)
    shift = jnp.asarray([0.0, 0.0, 0.0, 100.0])
    _, plain, _ = route(x, weights["router"], 0 * shift, config, is_token, axes=())
    experts, forced, _ = route(x, weights["router"], shift, config, is_token, axes=())
    np.testing.assert_allclose(jnp.sum(plain, axis=-1), 2.5, rtol=1e-6)
    assert np.all(experts[:, 0] == 3)  # the bias decides the choice
    scores = np.asarray(x @ weights["router"])
    affinity = 1 / (1 + np.exp(-np.take_along_axis(scores, np.asarray(experts), axis=1)))
    np.testing.assert_allclose(forced, 2.5 * affinity / affinity.sum(1, keepdims=True), rtol=1e-5)  # the score decides the weight


@pytest.mark.parametrize("renormalize", [True, False])
def test_softmax_weighs_experts_against_all_experts_of_their_token(renormalize: bool) -> None:
    config = narrow(router_affinity="softmax", router_renormalize=renormalize)
    x, weights, bias = layer_of(config)
    experts, combine, _ = route(x, weights["router"], bias, config, jnp.ones(x.shape[0], bool), axes=())
    exponents = np.exp(np.asarray(x @ weights["router"], np.float64))
    chosen = np.take_along_axis(exponents / exponents.sum(axis=1, keepdims=True), np.asarray(experts), axis=1)
    whole = chosen.sum(axis=1, keepdims=True) if renormalize else 1.0
    np.testing.assert_allclose(combine, config.router_combine_scale * chosen / whole, rtol=1e-5)


@pytest.mark.parametrize("estimator", ["exact", "histogram"])
def test_renumbered_experts_are_chosen_under_their_new_numbers_with_their_old_weights(estimator: str) -> None:
    config = narrow(router_quantile=estimator)
    x, weights, bias = layer_of(config)
    order, is_token = jnp.asarray([2, 0, 3, 1]), jnp.ones(x.shape[0], bool)
    experts, combine, stats = route(x, weights["router"], bias, config, is_token, axes=())
    renumbered, same_weights, moved = route(x, weights["router"][:, order], bias[order], config, is_token, axes=())
    np.testing.assert_array_equal(order[renumbered], experts)
    np.testing.assert_allclose(same_weights, combine, rtol=1e-6)
    np.testing.assert_array_equal(moved.load, stats.load[order])
    np.testing.assert_allclose(moved.next_bias, stats.next_bias[order], atol=1e-6)


def test_the_router_bias_has_no_gradient() -> None:
    config = narrow()
    x, weights, bias = layer_of(config)
    gradient = jax.jit(jax.grad(lambda bias: jnp.sum(run_layer(config)(x, weights, bias)[0] ** 2)))(bias)
    assert np.array_equal(gradient, np.zeros(config.experts))


@pytest.mark.parametrize("estimator", ["exact", "histogram"])
def test_padding_is_not_counted_and_does_not_vote(estimator: str) -> None:
    config = narrow(router_quantile=estimator)
    x, weights, bias = layer_of(config)
    is_token = jnp.arange(x.shape[0]) < 20
    _, _, stats = route(x, weights["router"], bias, config, is_token, axes=())
    _, _, alone = route(x[:20], weights["router"], bias, config, is_token[:20], axes=())
    assert np.sum(stats.load) == 20 * config.experts_per_token
    assert largest_difference(stats, alone) < 1e-6  # the same counts and the same order statistic


@pytest.mark.parametrize("estimator", ["exact", "histogram"])
def test_only_padding_leaves_a_finite_bias(estimator: str) -> None:
    config = narrow(router_quantile=estimator)
    x, weights, bias = layer_of(config)
    _, _, stats = route(x, weights["router"], bias, config, jnp.zeros(x.shape[0], bool), axes=())
    assert np.array_equal(stats.next_bias, np.zeros(config.experts))
    assert stats.entropy == 0


@pytest.mark.parametrize("estimator", ["exact", "histogram"])
def test_router_statistics_of_shards_are_those_of_the_whole(estimator: str) -> None:
    config = narrow(router_quantile=estimator)
    x, weights, bias = layer_of(config)
    is_token = jnp.arange(x.shape[0]) % 5 != 0

    def statistics(x: Array, is_token: Array, axes: Axes) -> RouterStats:
        return route(x, weights["router"], bias, config, is_token, axes=axes)[2]

    whole = statistics(x, is_token, ())
    # vmap names the axis as shard_map does, without needing devices.
    per_shard: Callable[[Array, Array], RouterStats] = functools.partial(statistics, axes=("data",))
    stats = jax.vmap(per_shard, axis_name="data")(x.reshape(4, -1, WIDTH), is_token.reshape(4, -1))
    for shard in range(4):
        assert largest_difference(jax.tree.map(lambda a, i=shard: a[i], stats), whole) < 1e-6


def test_scores_are_float32_whatever_the_router_multiplies_in() -> None:
    exact, rough = narrow(), narrow(router_operands="compute")
    x, weights, bias = layer_of(exact)
    half = x.astype(jnp.bfloat16)
    is_token = jnp.ones(x.shape[0], bool)
    _, combine, _ = route(half, weights["router"], bias, exact, is_token, axes=())
    _, rounded, _ = route(half, weights["router"], bias, rough, is_token, axes=())
    assert combine.dtype == rounded.dtype == jnp.float32
    rows, matrix = np.asarray(half, np.float64), np.asarray(weights["router"], np.float64)
    ours = route(half, weights["router"], 0 * bias, exact, is_token, axes=())
    affinity = 1 / (1 + np.exp(-np.take_along_axis(rows @ matrix, np.asarray(ours[0]), axis=1)))
    np.testing.assert_allclose(ours[1], 2.5 * affinity / affinity.sum(1, keepdims=True), rtol=1e-5)  # no bfloat16 rounding on the way
    assert not np.array_equal(combine, rounded)
