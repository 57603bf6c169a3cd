"""Balancing: quantiles against sorting, histograms against quantiles, and convergence from a strong skew."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.balance import balanced_bias, histogram, kth_largest, quantile_of
from tests.model.learner import variant

kth_largest_of_one = jax.jit(functools.partial(kth_largest, axes=()))
"""Compiled once for all examples."""


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=32, allow_nan=False), min_size=12, max_size=12),
    st.integers(min_value=1, max_value=6),
)
def test_kth_largest_equals_sorting(values: list[float], k: int) -> None:
    columns = np.asarray(values, np.float32).reshape(6, 2)
    found = kth_largest_of_one(jnp.asarray(columns), jnp.int32(k))
    np.testing.assert_array_equal(found, np.sort(columns, axis=0)[::-1][k - 1])


@pytest.mark.parametrize(("estimator", "bins"), [("exact", 2), ("histogram", 1000), ("histogram", 10_000)])
def test_balancing_converges_from_a_strong_skew_in_three_updates(estimator: str, bins: int) -> None:
    tokens = 8192
    config = variant(experts=64, experts_per_token=4, router_quantile=estimator, router_histogram_bins=bins)
    rng = np.random.default_rng(0)
    preference = rng.normal(size=config.experts) * 2
    bias = np.zeros(config.experts, np.float32)
    balanced = jax.jit(lambda scores, biased: balanced_bias(scores, biased, config, jnp.ones(tokens, bool), axes=()))
    violations = []
    for _ in range(4):
        scores = (rng.normal(size=(tokens, config.experts)) + preference).astype(np.float32)
        biased = scores + bias
        load = np.bincount(np.argsort(-biased, axis=1)[:, : config.experts_per_token].ravel(), minlength=config.experts)
        violations.append(load.max() / load.mean() - 1)
        bias = np.asarray(balanced(scores, biased))
    assert violations[0] > 5
    assert violations[3] <= 0.25  # what is left is the sampling noise of 512 tokens an expert
    assert abs(bias.mean()) < 1e-5


def test_quantile_bias_equals_its_definition_by_sorting() -> None:
    config = variant(experts=8, experts_per_token=2)
    scores, biased, margins = _scores(tokens=50, experts=8, chosen=2)
    expected = -np.sort(margins, axis=0)[::-1][50 * 2 // 8 - 1]
    ours = balanced_bias(scores, biased, config, jnp.ones(50, bool), axes=())
    np.testing.assert_allclose(ours, expected - expected.mean(), atol=1e-6)


def test_histograms_of_microbatches_add_up_to_the_whole_batchs() -> None:
    _, _, margins = _scores(tokens=96, experts=8, chosen=2)
    is_token = jnp.arange(96) % 7 != 3
    low, high = jnp.min(margins), jnp.max(margins)
    whole = histogram(jnp.asarray(margins), is_token, low, high, 50)
    parts = [histogram(jnp.asarray(margins[i::3]), is_token[i::3], low, high, 50) for i in range(3)]
    np.testing.assert_array_equal(parts[0] + parts[1] + parts[2], whole)
    assert np.all(np.sum(whole, axis=1) == np.sum(is_token))


@pytest.mark.parametrize("bins", [64, 1000])
def test_a_histograms_quantile_lies_within_a_bin_of_the_exact_one(bins: int) -> None:
    _, _, margins = _scores(tokens=500, experts=8, chosen=2)
    low, high = np.min(margins), np.max(margins)
    counts = histogram(jnp.asarray(margins), jnp.ones(500, bool), jnp.asarray(low), jnp.asarray(high), bins)
    for rank in (1, 125, 377, 500):
        found = np.asarray(quantile_of(counts, jnp.asarray(low), jnp.asarray(high), jnp.float32(rank)))
        exact = np.sort(margins, axis=0)[::-1][rank - 1]
        assert np.max(np.abs(found - exact)) <= (high - low) / bins * 1.001  # and the rounding of the edges


def test_equal_margins_give_a_finite_quantile() -> None:
    counts = histogram(jnp.full((10, 3), 2.0), jnp.ones(10, bool), jnp.float32(2), jnp.float32(2), 16)
    np.testing.assert_array_equal(quantile_of(counts, jnp.float32(2), jnp.float32(2), jnp.float32(4)), [2.0, 2.0, 2.0])


def _scores(tokens: int, experts: int, chosen: int) -> tuple[jax.Array, jax.Array, np.ndarray[tuple[int, int], np.dtype[np.float32]]]:
    """Scores, biased scores, and margins over the best score that was not chosen."""
    rng = np.random.default_rng(1)
    scores, bias = rng.normal(size=(tokens, experts)).astype(np.float32), rng.normal(size=experts).astype(np.float32)
    biased = scores + bias
    cutoff = np.sort(biased, axis=1)[:, -(chosen + 1)]
    return jnp.asarray(scores), jnp.asarray(biased), scores - cutoff[:, None]
