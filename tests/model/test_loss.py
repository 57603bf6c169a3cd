"""The chunked cross-entropy against full logits, and sums against their parts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from model.batch import Batch
from model.loss import LossSums, linear_cross_entropy, loss_sums, token_nats
from model.parameters import Params
from tests.model.learner import CHEAP, bias, largest_difference, packed, variant, weights

TOKENS, WIDTH, VOCABULARY = 23, 8, 40
Z_LOSS = 0.01


def _inputs() -> tuple[Array, Array, Array, Array]:
    keys = jax.random.split(jax.random.key(0), 4)
    rows, head = jax.random.normal(keys[0], (TOKENS, WIDTH)), jax.random.normal(keys[1], (WIDTH, VOCABULARY))
    targets = jax.random.randint(keys[2], (TOKENS,), 0, VOCABULARY)
    return rows, head, targets, jax.random.uniform(keys[3], (TOKENS,)).at[3].set(0)


def _with_full_logits(rows: Array, head: Array, targets: Array, loss_weights: Array) -> tuple[Array, Array, Array]:
    logits = rows @ head
    nats = jnp.sum(loss_weights * -jax.nn.log_softmax(logits)[jnp.arange(TOKENS), targets])
    z = jnp.sum(loss_weights * jax.nn.logsumexp(logits, axis=-1) ** 2)
    return nats + Z_LOSS * z, nats, z


@pytest.mark.parametrize("chunk_tokens", [1, 8, 1000])
def test_chunks_equal_full_logits_in_sums_and_gradients(chunk_tokens: int) -> None:
    rows, head, targets, loss_weights = _inputs()

    def outcome(loss: Any) -> Any:
        def tripled(rows: Array, head: Array) -> tuple[Array, tuple[Array, Array]]:
            objective, nats, z = loss(rows, head, targets, loss_weights)
            return 3 * objective, (nats, z)  # a cotangent other than 1

        return jax.jit(jax.value_and_grad(tripled, argnums=(0, 1), has_aux=True))(rows, head)

    chunked = outcome(lambda *inputs: linear_cross_entropy(*inputs, Z_LOSS, chunk_tokens))
    assert largest_difference(chunked, outcome(_with_full_logits)) < 1e-5  # float32 sums in another order


def test_only_the_objective_carries_a_gradient() -> None:
    rows, head, targets, loss_weights = _inputs()
    for index in (1, 2):
        gradient = jax.grad(lambda rows, i=index: linear_cross_entropy(rows, head, targets, loss_weights, Z_LOSS, 8)[i])(rows)
        assert not np.any(gradient)


def test_evaluation_and_training_report_the_same_sums() -> None:
    rows, head, targets, loss_weights = _inputs()
    forward_only = linear_cross_entropy(rows, head, targets, loss_weights, Z_LOSS, 8)
    with_gradient, _ = jax.vjp(lambda rows: linear_cross_entropy(rows, head, targets, loss_weights, Z_LOSS, 8), rows)
    assert largest_difference(forward_only, with_gradient) < 1e-6


def test_logits_of_all_tokens_never_exist_together() -> None:
    rows, targets, loss_weights = jnp.zeros((4096, WIDTH)), jnp.zeros(4096, jnp.int32), jnp.ones(4096)

    def objective(rows: Array, head: Array) -> Array:
        return linear_cross_entropy(rows, head, targets, loss_weights, Z_LOSS, 64)[0]

    compiled = jax.jit(jax.grad(objective, argnums=(0, 1))).lower(rows, jnp.zeros((WIDTH, 1000))).compile()
    memory = compiled.memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes < 4096 * 1000 * 4 / 8  # an eighth of the logits


def test_microbatches_add_up_to_the_batch() -> None:
    config = variant(layers=1, global_every=None, router_balancing="none", kernels=CHEAP)
    params, router_bias, batch = weights(config), bias(config), packed(config, rows=4)
    whole, whole_gradient = _sums_and_gradient(config, params, router_bias, batch)
    halves = [_sums_and_gradient(config, params, router_bias, Batch(*(a[part] for a in batch))) for part in (slice(0, 2), slice(2, 4))]
    added, added_gradient = jax.tree.map(lambda a, b: a + b, *halves)
    assert largest_difference(added[:4], whole[:4]) < 1e-5
    np.testing.assert_array_equal(added.router.load, whole.router.load)
    assert largest_difference(added_gradient, whole_gradient) < 1e-5


def test_loss_sums_weigh_the_nats_of_every_token() -> None:
    config = variant(layers=1, global_every=None, z_loss=0.5, kernels=CHEAP)
    params, router_bias, batch = weights(config), bias(config), packed(config)
    sums, _ = _sums_and_gradient(config, params, router_bias, batch)
    nats = token_nats(params, router_bias, config, batch)
    np.testing.assert_allclose(sums.nats_sum, np.sum(nats * batch.loss_weights), rtol=1e-5)
    np.testing.assert_allclose(sums.objective_sum, sums.nats_sum + 0.5 * sums.z_sum, rtol=1e-6)
    assert sums.weight_sum == np.sum(batch.loss_weights)


def _sums_and_gradient(config: Any, params: Params, router_bias: Array, batch: Batch[jax.Array]) -> tuple[LossSums, Params]:
    def objective(params: Params) -> tuple[Array, LossSums]:
        sums = loss_sums(params, router_bias, config, batch)
        return sums.objective_sum, sums

    gradient, sums = jax.jit(jax.grad(objective, has_aux=True))(params)
    return sums, gradient
