"""Newton-Schulz against singular value decompositions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.newton_schulz import COEFFICIENTS, NewtonSchulzSet
from model.orthogonal import orthogonalized


@pytest.mark.parametrize(("name", "low", "high"), [("standard", 0.65, 1.25), ("dion", 0.7, 1.2), ("polar_express", 0.7, 1.2)])
@pytest.mark.parametrize("shape", [(24, 24), (16, 48), (48, 16)])
def test_five_steps_bring_singular_values_to_about_one_and_keep_singular_vectors(
    name: NewtonSchulzSet, low: float, high: float, shape: tuple[int, int]
) -> None:
    matrix = np.asarray(jax.random.normal(jax.random.key(1), shape), np.float64)
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    matrix = left @ np.diag(np.geomspace(1, 0.02, min(shape))) @ right * 37.0  # condition 50, and a scale that must not matter
    found = np.asarray(orthogonalized(jnp.asarray(matrix, jnp.float32), (0, 1), COEFFICIENTS[name][:5], eps=1e-8, dtype=jnp.float32))
    values = np.linalg.svd(found, compute_uv=False)
    assert low < values.min() <= values.max() < high
    inside = left.T @ found @ right.T
    assert np.max(np.abs(inside - np.diag(np.diag(inside)))) < 1e-4  # float32 rounding through five steps
    assert np.all(np.diag(inside) > 0)


def test_seven_polar_express_steps_reach_one_from_a_thousandth() -> None:
    values = np.geomspace(1e-3, 1, 200)
    for a, b, c in COEFFICIENTS["polar_express"]:
        values = a * values + b * values**3 + c * values**5
    assert np.max(np.abs(values - 1)) < 0.01


def test_every_matrix_of_a_stack_is_turned_by_itself_along_the_declared_axes() -> None:
    stack = jax.random.normal(jax.random.key(2), (2, 3, 6, 8)) * jnp.asarray([1e-3, 1.0, 1e3])[None, :, None, None]
    found = orthogonalized(stack, (2, 3), COEFFICIENTS["dion"], eps=1e-12, dtype=jnp.float32)
    for layer, expert in np.ndindex(2, 3):
        alone = orthogonalized(stack[layer, expert], (0, 1), COEFFICIENTS["dion"], eps=1e-12, dtype=jnp.float32)
        np.testing.assert_allclose(found[layer, expert], alone, atol=1e-5)
    moved = orthogonalized(jnp.moveaxis(stack, 2, 0), (0, 3), COEFFICIENTS["dion"], eps=1e-12, dtype=jnp.float32)
    np.testing.assert_allclose(jnp.moveaxis(moved, 0, 2), found, atol=1e-6)


def test_bfloat16_products_stay_near_float32_ones() -> None:
    matrix = jax.random.normal(jax.random.key(3), (16, 32))
    exact, rough = (orthogonalized(matrix, (0, 1), COEFFICIENTS["dion"], eps=1e-8, dtype=dtype) for dtype in (jnp.float32, jnp.bfloat16))
    assert rough.dtype == jnp.float32
    assert 0 < float(jnp.linalg.norm(rough - exact) / jnp.linalg.norm(exact)) < 0.05  # 8 bits of mantissa, five steps
