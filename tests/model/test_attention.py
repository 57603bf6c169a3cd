"""Attention alone: back ends against each other, masks by gradient, exclusion of the own value."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from model.attention import attend
from model.exclusion import exclude_own_value
from model.rope import angles, rotate
from model.splash import attend_by_splash
from tests.model.learner import largest_difference, variant

BACKENDS = ("plain", "triangle", "library")
TOKENS = 20


def _inputs(heads: int = 4, kv_heads: int = 2, head_dim: int = 8) -> tuple[Array, Array, Array]:
    keys = jax.random.split(jax.random.key(0), 3)
    q = jax.random.normal(keys[0], (2, TOKENS, heads, head_dim))
    k, v = (jax.random.normal(key, (2, TOKENS, kv_heads, head_dim)) for key in keys[1:])
    return q, k, v


def _attender(backend: str, window: int | None) -> Callable[[Array, Array, Array], Array]:
    config = variant(kernels={"attention_backend": backend, "attention_block_tokens": 6})  # 6 leaves a short last block
    segment_ids = jnp.asarray([[0] * 5 + [1] * 12 + [-1] * 3, [3] * TOKENS])
    return lambda q, k, v: attend(q, k, v, segment_ids, config, window=window)


@pytest.mark.parametrize("window", [None, 1, 7])
def test_back_ends_agree_forward_and_backward(window: int | None) -> None:
    def outcome(backend: str) -> tuple[Array, tuple[Array, Array, Array]]:
        def loss(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
            y = _attender(backend, window)(q, k, v)
            return jnp.sum(y * jnp.sin(jnp.arange(y.size)).reshape(y.shape)), y

        gradient, y = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(*_inputs())
        return y, gradient

    oracle = outcome("plain")
    for backend in ("triangle", "library"):
        # With a window of one key nothing reaches q and k: an absolute floor keeps zeros comparable.
        for ours, theirs in zip(jax.tree.leaves(outcome(backend)), jax.tree.leaves(oracle), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6)  # float32 sums in another order


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("window", [None, 7])
def test_a_query_moves_only_with_keys_of_its_document_inside_its_window(backend: str, window: int | None) -> None:
    q, k, v = _inputs()

    def readout(k: Array, v: Array) -> Array:
        return jnp.sum(_attender(backend, window)(q, k, v)[0, 15] ** 2)

    gradients = jax.jit(jax.grad(readout, argnums=(0, 1)))(k, v)
    seen = list(range(9, 16)) if window else list(range(5, 16))  # document 1 begins at 5
    for gradient in gradients:
        assert list(np.flatnonzero(np.any(gradient[0] != 0, axis=(-2, -1)))) == seen
        assert not np.any(gradient[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_neighbouring_query_heads_share_a_kv_head(backend: str) -> None:
    q, k, v = _inputs()
    grouped = _attender(backend, None)(q, k, v)
    repeated = _attender(backend, None)(q, jnp.repeat(k, 2, axis=2), jnp.repeat(v, 2, axis=2))
    assert largest_difference(grouped, repeated) < 1e-6  # the same sums


def test_exclusive_output_has_no_part_along_the_own_value() -> None:
    q, k, v = _inputs()
    z = exclude_own_value(_attender("plain", None)(q, k, v), v)
    along = jnp.sum(z * jnp.repeat(v, 2, axis=2), axis=-1)
    lengths = jnp.linalg.norm(z, axis=-1) * jnp.linalg.norm(jnp.repeat(v, 2, axis=2), axis=-1)
    assert np.max(np.abs(along)) < 1e-5 * np.max(lengths)
    assert np.max(lengths) > 1


def test_rotation_makes_scores_depend_on_distance_alone() -> None:
    q, k, _ = _inputs(heads=1, kv_heads=1)
    query, key = (jnp.broadcast_to(a[:1, :1], (1, TOKENS, 1, 8)) for a in (q, k))
    turns = angles(TOKENS, rotated_channels=4, theta=100.0)
    scores = np.asarray(jnp.einsum("bqnh,bknh->qk", rotate(query, turns), rotate(key, turns)))
    for distance in (0, 3, 11):
        same_distance = np.diagonal(scores, -distance)
        np.testing.assert_allclose(same_distance, same_distance[0], atol=1e-5)
    assert abs(scores[5, 5] - scores[8, 5]) > 1e-3


def test_rotation_leaves_the_other_channels_alone() -> None:
    q, _, _ = _inputs()
    turned = rotate(q, angles(TOKENS, rotated_channels=4, theta=100.0))
    assert np.array_equal(turned[..., 4:], q[..., 4:])
    assert not np.allclose(turned[:, 1:, :, :4], q[:, 1:, :, :4])
    assert np.array_equal(rotate(q, angles(TOKENS, rotated_channels=0, theta=100.0)), q)


@pytest.mark.parametrize("window", [None, 60])
def test_splash_computes_what_the_plain_back_end_does(window: int | None) -> None:
    tokens, keys = 256, jax.random.split(jax.random.key(0), 3)
    inputs = tuple(jax.random.normal(key, (1, tokens, heads, 128)) for key, heads in zip(keys, (2, 1, 1), strict=True))
    segment_ids = jnp.where(jnp.arange(tokens) < 100, 0, jnp.where(jnp.arange(tokens) < 240, 1, -1))[None]
    plain = variant(kernels={"attention_backend": "plain"})

    def splash(q: Array, k: Array, v: Array) -> Array:
        return jnp.sum(jnp.sin(attend_by_splash(q, k, v, segment_ids, window, interpret=True)))

    def oracle(q: Array, k: Array, v: Array) -> Array:
        return jnp.sum(jnp.sin(attend(q, k, v, segment_ids, plain, window=window)))

    found, expected = (jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(*inputs) for loss in (splash, oracle))
    assert largest_difference(found, expected) < 1e-5  # float32 sums in another order
