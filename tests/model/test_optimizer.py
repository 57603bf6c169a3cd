"""Which optimizer moves which leaf, and what it does to it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.typing import NDArray

from model.config import OptimizerConfig, ScheduleConfig
from model.newton_schulz import COEFFICIENTS, NewtonSchulzSet
from model.optimizer import after_growth, make_optimizer
from model.parameters import declare, init
from model.sphere import radius_drift
from tests.model.learner import variant

CONSTANT = ScheduleConfig(schedule_steps=100, floor_share=1.0)
FULL = variant(norm_gate_rank=4, attention_gate=True)


def test_every_leaf_is_in_exactly_the_group_this_table_says() -> None:
    groups: dict[str, set[str]] = {"matrix": set(), "head": set(), "adam": set()}
    for leaf in jax.tree.leaves(declare(FULL)):
        groups[leaf.group].add(leaf.name)
    norms = {"embedding_norm", "final_norm", "layers/attention/norm", "layers/moe/norm"}
    assert groups["adam"] == {"embedding", "layers/moe/router", "layers/attention/gate"} | {f"{norm}/gain" for norm in norms}
    assert groups["head"] == {"head"}
    attention = {f"layers/attention/{name}" for name in ("query", "key", "value", "output")}
    experts = {f"layers/moe/{bank}_{part}" for bank in ("expert", "shared") for part in ("gate", "up", "down")}
    assert groups["matrix"] == attention | experts | {f"{norm}/gate_{part}" for norm in norms for part in ("down", "up")}


def test_the_state_holds_one_momentum_for_muon_and_two_moments_for_adam() -> None:
    config = variant()
    leaves, params = declare(config), init(config, 0)
    state = make_optimizer(OptimizerConfig(), CONSTANT, leaves).init(params)
    expected = sum(leaf.size * (1 if leaf.group == "matrix" else 2) for leaf in jax.tree.leaves(leaves))
    assert sum(array.size for array in jax.tree.leaves(state) if array.ndim) == expected


def test_muon_turns_every_stacked_matrix_by_itself() -> None:
    config = variant()
    leaves, params = declare(config), init(config, 0)
    # Experts' gradients differ a thousandfold; orthogonalised one by one, their updates still weigh the same.
    sizes = jnp.asarray([1e-3, 1.0, 1.0, 1e3])[None, :, None, None]
    gradient = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(1), leaf.shape), leaves)
    gradient["layers"]["moe"]["expert_up"] = gradient["layers"]["moe"]["expert_up"] * sizes
    update = _first_update(OptimizerConfig(muon_learning_rate=1.0, muon_update_rms=None), gradient, params, leaves)
    for name in ("expert_up", "expert_down"):
        for matrix in np.asarray(update["layers"]["moe"][name]).reshape(-1, *update["layers"]["moe"][name].shape[-2:]):
            values = np.linalg.svd(matrix / np.sqrt(max(1.0, matrix.shape[1] / matrix.shape[0])), compute_uv=False)
            assert np.all((values > 0.6) & (values < 1.3))  # five steps of the standard coefficients


def test_muon_follows_the_gradients_polar_factor() -> None:
    config = variant()
    leaves, params = declare(config), init(config, 0)
    gradient = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(1), leaf.shape), leaves)
    update = _first_update(OptimizerConfig(muon_learning_rate=1.0), gradient, params, leaves)
    for ours, theirs in ((update["layers"]["attention"]["query"][1], gradient["layers"]["attention"]["query"][1]),):
        left, _, right = np.linalg.svd(np.asarray(theirs, np.float64), full_matrices=False)
        assert _cosine(-np.asarray(ours), left @ right) > 0.97


@pytest.mark.parametrize("coefficients", ["standard", "dion", "polar_express"])
def test_muon_updates_have_the_declared_size_whatever_their_shape(coefficients: Any) -> None:
    config = variant()
    leaves, params = declare(config), init(config, 0)
    gradient = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(1), leaf.shape), leaves)
    optimizer = OptimizerConfig(muon_learning_rate=0.5, muon_update_rms=0.2, muon_ns_coefficients=coefficients)
    update = _first_update(optimizer, gradient, params, leaves)
    for leaf, array in zip(jax.tree.leaves(leaves), jax.tree.leaves(update), strict=True):
        if leaf.group == "matrix":
            root_mean_square = float(np.sqrt(np.mean(np.asarray(array) ** 2)))
            assert root_mean_square == pytest.approx(0.5 * 0.2, rel=0.3), leaf.name  # singular values lie in about 0.7..1.2


def test_rates_follow_the_schedule_of_each_group() -> None:
    config = variant()
    leaves, params = declare(config), init(config, 0)
    schedule = ScheduleConfig(schedule_steps=4, warmup_steps=2, floor_share=0.5)
    optimizer = make_optimizer(OptimizerConfig(muon_learning_rate=0.1, adam_learning_rate=0.01, adam_eps=1e-12), schedule, leaves)
    gradient = jax.tree.map(jnp.ones_like, params)  # constant: Adam's direction is 1 at every step
    state, moved = optimizer.init(params), []
    update_of = jax.jit(optimizer.update)
    for _ in range(4):
        update, state = update_of(gradient, state, params)
        moved.append((float(-update["head"][0, 0]), float(optax.tree.norm(update["layers"]["attention"]["query"]))))
    adam, muon = zip(*moved, strict=True)
    np.testing.assert_allclose(adam, np.array([0.5, 1.0, 0.75, 0.5]) * 0.01, rtol=1e-5)
    np.testing.assert_allclose(np.array(muon) / muon[1], [0.5, 1.0, 0.75, 0.5], rtol=1e-4)


SPHERES: dict[str, Any] = {"matrix_rule": "muon_sphere", "head_rule": "adam_sphere"}


def test_on_spheres_every_matrix_and_the_head_keep_their_own_norm_and_the_rest_moves_by_adam() -> None:
    config = variant(latent_width=12, shared_experts=2)
    leaves, params = declare(config), init(config, 0)
    optimizer = make_optimizer(OptimizerConfig(**SPHERES, muon_learning_rate=0.05), CONSTANT, leaves)
    state, start = optimizer.init(params), params

    @jax.jit
    def update(seed: Any, state: Any, params: Any) -> tuple[Any, Any]:
        keys = iter(jax.random.split(jax.random.key(seed), 64))
        gradient = jax.tree.map(lambda leaf: jax.random.normal(next(keys), leaf.shape), leaves)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    for seed in range(5):
        params, state = update(seed, state, params)
    assert float(radius_drift(state, params, leaves)) < 1e-6
    for leaf, before, after in zip(jax.tree.leaves(leaves), jax.tree.leaves(start), jax.tree.leaves(params), strict=True):
        assert not np.array_equal(before, after), leaf.name
        if leaf.group != "adam":
            norms = [np.linalg.norm(np.asarray(array, np.float64), axis=leaf.matrix_axes) for array in (before, after)]
            np.testing.assert_allclose(norms[1], norms[0], rtol=1e-6, err_msg=leaf.name)


def test_a_step_of_muon_on_a_sphere_is_its_published_definition() -> None:
    config = variant()
    leaves, params = declare(config), init(config, 0)
    optimizer = make_optimizer(OptimizerConfig(**SPHERES, muon_learning_rate=0.1, muon_ns_coefficients="dion"), CONSTANT, leaves)
    gradients = [jax.tree.map(lambda leaf, s=seed: jax.random.normal(jax.random.key(s), leaf.shape), leaves) for seed in (1, 2)]
    state = optimizer.init(params)
    w = np.asarray(params["layers"]["moe"]["expert_down"][1, 2], np.float64)
    momentum, radius = np.zeros_like(w), np.linalg.norm(w)
    for gradient in gradients:
        updates, state = jax.jit(optimizer.update)(gradient, state, params)
        params = optax.apply_updates(params, updates)
        g = np.asarray(gradient["layers"]["moe"]["expert_down"][1, 2], np.float64)
        momentum = 0.95 * momentum + g
        u = _newton_schulz(0.95 * momentum + g, "dion")
        y = w - 0.1 * radius * u / np.linalg.norm(u)
        w = radius * y / np.linalg.norm(y)
    np.testing.assert_allclose(params["layers"]["moe"]["expert_down"][1, 2], w, atol=1e-5)


def test_the_head_on_a_sphere_steps_along_adams_direction() -> None:
    config = variant()
    leaves, params = declare(config), init(config, 0)
    gradient = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(1), leaf.shape), leaves)
    update = _first_update(OptimizerConfig(**SPHERES, head_learning_rate=0.02, adam_eps=1e-12), gradient, params, leaves)
    w, sign = np.asarray(params["head"], np.float64), np.sign(np.asarray(gradient["head"], np.float64))
    y = w - 0.02 * np.linalg.norm(w) * sign / np.linalg.norm(sign)  # Adam's first direction is the sign
    np.testing.assert_allclose(update["head"], np.linalg.norm(w) * y / np.linalg.norm(y) - w, atol=1e-6)


def test_a_doubled_batch_scales_rates_by_the_root_of_two_and_keeps_adams_memory_in_tokens() -> None:
    config = variant()
    leaves, params = declare(config), init(config, 0)
    settings = OptimizerConfig(muon_learning_rate=0.1, adam_learning_rate=0.01, adam_beta2=0.98, adam_eps=1e-3)

    def growth(count: jax.Array) -> jax.Array:
        return jnp.where(count < 2, 1.0, 2.0)

    grown, plain = (make_optimizer(settings, CONSTANT, leaves, g) for g in (growth, None))
    after = make_optimizer(after_growth(settings, 2.0), CONSTANT, leaves)
    gradient = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(1), leaf.shape), leaves)
    states = grown.init(params), plain.init(params)
    for _ in range(2):
        ours, theirs = (jax.jit(rule.update)(gradient, state, params) for rule, state in zip((grown, plain), states, strict=True))
        assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.allclose(a, b, rtol=1e-6, atol=1e-9)), ours[0], theirs[0]))
        states = ours[1], theirs[1]
    ours, _ = jax.jit(grown.update)(gradient, states[0], params)
    theirs, _ = jax.jit(after.update)(gradient, states[0], params)
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(left, np.sqrt(2) * right, rtol=1e-5, atol=1e-9)
    assert after_growth(settings, 2.0).adam_beta2 == pytest.approx(0.98**2)
    assert after_growth(settings, 2.0).adam_eps == pytest.approx(1e-3 / np.sqrt(2))
    assert after_growth(OptimizerConfig(adam_beta2=0.95), 2.0).adam_beta2 == 0.95  # at its bound already


def _newton_schulz(matrix: NDArray[np.float64], name: NewtonSchulzSet) -> NDArray[np.float64]:
    x = matrix / np.linalg.norm(matrix)
    for a, b, c in COEFFICIENTS[name]:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return np.asarray(x)


def _first_update(optimizer: OptimizerConfig, gradient: Any, params: Any, leaves: Any) -> Any:
    transformation = make_optimizer(optimizer, CONSTANT, leaves)
    return jax.jit(transformation.update)(gradient, transformation.init(params), params)[0]


def _cosine(left: NDArray[Any], right: NDArray[Any]) -> float:
    return float(np.sum(left * right) / (np.linalg.norm(left) * np.linalg.norm(right)))
