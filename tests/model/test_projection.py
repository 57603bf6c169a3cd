"""Gradients that are written out for a CPU: projections and rotations against what JAX derives."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array

from model.architecture import KernelConfig
from model.projection import apply
from model.rope import angles, rotate
from tests.model.learner import largest_difference


def _pulls(f: Any, *arguments: Array) -> Any:
    return jax.grad(lambda *a: jnp.sum(jnp.sin(f(*a))), argnums=tuple(range(len(arguments))))(*arguments)


def test_a_turned_gradient_is_the_direct_one() -> None:
    keys = jax.random.split(jax.random.key(0), 2)
    x, matrix = jax.random.normal(keys[0], (2, 9, 6)), jax.random.normal(keys[1], (6, 10))
    turned, direct = (
        _pulls(lambda x, m, k=kernels: apply(x, m, KernelConfig(weight_gradients=k)), x, matrix) for kernels in ("turned", "direct")
    )
    oracle = _pulls(lambda x, m: jnp.einsum("btd,de->bte", x, m), x, matrix)
    assert largest_difference(turned, oracle) < 1e-6  # of the largest entry: float32 sums in another order
    assert largest_difference(direct, oracle) < 1e-6


@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
def test_a_rotation_turns_its_gradient_back(pairing: Any) -> None:
    x, turns = jax.random.normal(jax.random.key(1), (2, 7, 3, 8)), angles(7, rotated_channels=4, theta=100.0)
    channels = jnp.broadcast_to(jnp.eye(8)[:, None, None], (8, 7, 1, 8))
    matrix = rotate(channels, turns, pairing)[:, :, 0]  # [in, tokens, out]: a rotation is linear, so this is all of it
    found = _pulls(lambda x: rotate(x, turns, pairing), x)
    oracle = _pulls(lambda x: jnp.einsum("ito,bthi->btho", matrix, x), x)
    assert largest_difference(found, oracle) < 1e-6
