"""Which optimizer moves which leaf, and what it does to it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.typing import NDArray

from model.config import OptimizerConfig, ScheduleConfig
from model.optimizer import make_optimizer
from model.parameters import declare, init
from tests.model.learner import variant

CONSTANT = ScheduleConfig(schedule_steps=100, floor_share=1.0)
FULL = variant(norm_gate_rank=4, attention_gate=True)


def test_every_leaf_is_in_exactly_the_group_this_table_says() -> None:
    groups: dict[str, set[str]] = {"muon": set(), "adam": set()}
    for leaf in jax.tree.leaves(declare(FULL)):
        groups[leaf.group].add(leaf.name)
    norms = {"embedding_norm", "final_norm", "layers/attention/norm", "layers/moe/norm"}
    assert groups["adam"] == {"embedding", "head", "layers/moe/router", "layers/attention/gate"} | {f"{norm}/gain" for norm in norms}
    attention = {f"layers/attention/{name}" for name in ("query", "key", "value", "output")}
    experts = {f"layers/moe/{bank}_{part}" for bank in ("expert", "shared") for part in ("gate", "up", "down")}
    assert groups["muon"] == attention | experts | {f"{norm}/gate_{part}" for norm in norms for part in ("down", "up")}


def test_the_state_holds_one_momentum_for_muon_and_two_moments_for_adam() -> None:
    config = variant()
    leaves, params = declare(config), init(config, 0)
    state = make_optimizer(OptimizerConfig(), CONSTANT, leaves).init(params)
    expected = sum(leaf.size * (1 if leaf.group == "muon" else 2) for leaf in jax.tree.leaves(leaves))
    assert sum(array.size for array in jax.tree.leaves(state) if array.ndim and array.size != 3) == expected  # 3: the coefficients


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


@pytest.mark.parametrize("coefficients", ["standard", "dion"])
def test_muon_updates_have_the_declared_size_whatever_their_shape(coefficients: Any) -> None:
    config = variant()
    leaves, params = declare(config), init(config, 0)
    gradient = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(1), leaf.shape), leaves)
    optimizer = OptimizerConfig(muon_learning_rate=0.5, muon_update_rms=0.2, muon_ns_coefficients=coefficients)
    update = _first_update(optimizer, gradient, params, leaves)
    for leaf, array in zip(jax.tree.leaves(leaves), jax.tree.leaves(update), strict=True):
        if leaf.group == "muon":
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


def _first_update(optimizer: OptimizerConfig, gradient: Any, params: Any, leaves: Any) -> Any:
    transformation = make_optimizer(optimizer, CONSTANT, leaves)
    return jax.jit(transformation.update)(gradient, transformation.init(params), params)[0]


def _cosine(left: NDArray[Any], right: NDArray[Any]) -> float:
    return float(np.sum(left * right) / (np.linalg.norm(left) * np.linalg.norm(right)))
