"""Experts: every back end against the dense oracle."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array

from model.architecture import KernelConfig
from model.experts import Bank, run_experts
from tests.model.layers import WIDTH, bank_of, choices, layer_of, narrow, run_layer
from tests.model.learner import largest_difference


@pytest.mark.parametrize("kind", ["even", "skewed", "one hot spot"])
@pytest.mark.parametrize(("tokens", "experts", "chosen"), [(37, 5, 2), (3, 8, 1)])
def test_back_ends_equal_the_dense_oracle_forward_and_backward(kind: str, tokens: int, experts: int, chosen: int) -> None:
    x = jax.random.normal(jax.random.key(1), (tokens, WIDTH))
    combine = jax.random.uniform(jax.random.key(2), (tokens, chosen))
    selected = choices(kind, tokens, experts, chosen)

    def outcome(backend: Any) -> Any:
        kernels = KernelConfig(moe_backend=backend, moe_block_rows=4)

        def loss(x: Array, bank: Bank, combine: Array) -> tuple[Array, Array]:
            y = run_experts(x, bank, selected, combine, kernels)
            return jnp.sum(y * jnp.sin(jnp.arange(y.size)).reshape(y.shape)), y

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(x, bank_of(experts), combine)

    oracle = outcome("dense")
    for backend in ("looped", "blocked", "ragged"):
        assert largest_difference(outcome(backend), oracle) < 2e-6  # of each array's largest entry: float32 sums in another order


def test_a_choice_of_nobody_adds_nothing_in_a_loop_over_experts() -> None:
    x, bank = jax.random.normal(jax.random.key(1), (11, WIDTH)), bank_of(3)
    selected = jnp.where(jnp.arange(22).reshape(11, 2) % 5 == 0, 3, choices("even", 11, 3, 2))
    kernels = KernelConfig(moe_backend="looped", moe_block_rows=4)

    def mixed(x: Array, bank: Bank, combine: Array, selected: Array, kernels: KernelConfig) -> Array:
        return jnp.sum(run_experts(x, bank, selected, combine, kernels) * jnp.cos(x))

    pulls = jax.grad(mixed, argnums=(0, 1, 2))
    looped = jax.jit(pulls, static_argnums=4)(x, bank, jnp.ones((11, 2)), selected, kernels)
    oracle = jax.jit(pulls, static_argnums=4)(x, bank, jnp.ones((11, 2)), selected, KernelConfig(moe_backend="dense"))
    assert largest_difference(looped, oracle) < 2e-6  # whose one-hot of no expert is a row of zeros
    assert float(jnp.max(jnp.abs(jnp.where(selected == 3, looped[2], 0)))) == 0


@pytest.mark.parametrize(
    "changes", [{"kernels": {"moe_backend": backend}} for backend in ("dense", "blocked", "looped", "ragged")] + [{"capacity_factor": 4.0}]
)
def test_renumbering_the_experts_changes_nothing_else(changes: dict[str, Any]) -> None:
    config = narrow(**changes)
    x, weights, bias = layer_of(config)
    order = jnp.asarray([2, 0, 3, 1])
    renumbered = {name: a[order] if name.startswith("expert_") else a for name, a in weights.items()} | {
        "router": weights["router"][:, order]
    }
    y, stats = run_layer(config)(x, weights, bias)
    y_renumbered, stats_renumbered = run_layer(config)(x, renumbered, bias[order])
    assert largest_difference(y_renumbered, y) < 2e-6
    assert largest_difference(stats_renumbered.load, stats.load[order]) == 0
    assert float(jnp.max(jnp.abs(stats_renumbered.next_bias - stats.next_bias[order]))) < 1e-6
