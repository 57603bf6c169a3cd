"""Steps on a sphere: every matrix keeps its own norm, whatever it is stacked with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from model.leaf import Leaf
from model.sphere import SphereState, radius_drift, radius_of, step_on_sphere


def _leaf(name: str, shape: tuple[int, ...], axes: tuple[int, int]) -> Leaf:
    return Leaf(name, shape, axes, "matrix", "normal", 0.1, "trunk", (None,) * len(shape))


LEAVES = {
    "experts": _leaf("experts", (2, 4, 6, 8), (2, 3)),
    "layers": _leaf("layers", (3, 8, 6), (1, 2)),
    "first": _leaf("first", (5, 7, 4), (0, 1)),  # stacked on its last axis
    "single": _leaf("single", (6, 1), (0, 1)),
}


def _drawn(seed: int) -> Any:
    return {
        name: jax.random.normal(jax.random.fold_in(jax.random.key(seed), i), leaf.shape) for i, (name, leaf) in enumerate(LEAVES.items())
    }


def _unequal(directions: Any) -> Any:
    """Experts whose updates differ a millionfold in scale."""
    return directions | {"experts": directions["experts"] * jnp.asarray([1e-3, 1.0, 10.0, 1e3])[None, :, None, None]}


def test_norms_stay_constant_over_many_large_steps_under_any_stacking() -> None:
    params = _drawn(0)
    transform = step_on_sphere(LEAVES, lambda count: 0.1)
    state, before = transform.init(params), {name: radius_of(params[name], leaf.matrix_axes or (0, 1)) for name, leaf in LEAVES.items()}
    update = jax.jit(transform.update)
    for step in range(30):
        steps, state = update(_unequal(_drawn(step + 1)), state, params)
        params = optax.apply_updates(params, steps)
    for name, leaf in LEAVES.items():
        assert leaf.matrix_axes is not None
        np.testing.assert_allclose(radius_of(params[name], leaf.matrix_axes), before[name], rtol=1e-6)
    assert float(radius_drift(state, params, LEAVES)) < 1e-6


def test_one_norm_over_all_experts_would_let_each_of_them_drift() -> None:
    params, directions = _drawn(0)["experts"], _unequal(_drawn(1))["experts"]
    whole = jnp.linalg.norm(params)
    y = params - 0.1 * whole * directions / jnp.linalg.norm(directions)
    wrong = whole * y / jnp.linalg.norm(y)
    drift = jnp.abs(radius_of(wrong, (2, 3)) / radius_of(params, (2, 3)) - 1)
    assert float(jnp.max(drift)) > 1e-3  # a thousand times what rounding does in thirty steps


def test_a_step_equals_its_definition_in_float64() -> None:
    params, directions = _drawn(0), _drawn(1)
    transform = step_on_sphere(LEAVES, lambda count: 0.03)
    steps, _ = transform.update(directions, transform.init(params), params)
    w, u = (np.asarray(tree["layers"], np.float64) for tree in (params, directions))
    for layer in range(3):
        radius = np.linalg.norm(w[layer])
        y = w[layer] - 0.03 * radius * u[layer] / np.linalg.norm(u[layer])
        np.testing.assert_allclose(steps["layers"][layer], radius * y / np.linalg.norm(y) - w[layer], atol=1e-6)


def test_a_rate_of_zero_and_a_direction_of_zero_change_nothing() -> None:
    params = _drawn(0)
    for rate, directions in ((0.0, _drawn(1)), (0.1, jax.tree.map(jnp.zeros_like, params))):
        transform = step_on_sphere(LEAVES, lambda count, rate=rate: rate)
        steps, _ = transform.update(directions, transform.init(params), params)
        assert all(np.max(np.abs(step)) < 3e-7 for step in jax.tree.leaves(steps))  # the rounding of entries up to 4


def test_the_scale_of_a_direction_cancels() -> None:
    params, directions = _drawn(0), _drawn(1)
    transform = step_on_sphere(LEAVES, lambda count: 0.1)
    state = transform.init(params)
    small, large = (transform.update(jax.tree.map(lambda u, f=f: f * u, directions), state, params)[0] for f in (1e-4, 1e4))
    for ours, theirs in zip(jax.tree.leaves(small), jax.tree.leaves(large), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_rate_follows_the_number_of_updates() -> None:
    params = _drawn(0)
    transform = step_on_sphere(LEAVES, lambda count: jnp.where(count == 0, 0.0, 0.1))
    first, state = transform.update(_drawn(1), transform.init(params), params)
    second, state = transform.update(_drawn(1), state, params)
    assert np.max(np.abs(first["layers"])) < 1e-6 < 1e-2 < np.max(np.abs(second["layers"]))
    assert int(state.made) == 2


def test_a_matrix_that_left_its_sphere_or_has_no_radius_is_seen() -> None:
    params = _drawn(0)
    state = step_on_sphere(LEAVES, lambda count: 0.1).init(params)
    assert float(radius_drift(state, params, LEAVES)) < 1e-6
    shrunk = params | {"experts": params["experts"].at[1, 2].multiply(0.98)}
    assert float(radius_drift(state, shrunk, LEAVES)) == pytest.approx(0.02, rel=1e-3)
    empty = params | {"layers": params["layers"].at[0].set(0.0)}
    broken = step_on_sphere(LEAVES, lambda count: 0.1).init(empty)
    assert not np.isfinite(float(radius_drift(broken, empty, LEAVES)))
    assert float(radius_drift(optax.EmptyState(), params, LEAVES)) == 0.0


def test_parameters_are_asked_for() -> None:
    transform = step_on_sphere(LEAVES, lambda count: 0.1)
    with pytest.raises(ValueError, match="needs the parameters it starts from"):
        transform.update(_drawn(1), SphereState(jnp.int32(0), {}), None)
