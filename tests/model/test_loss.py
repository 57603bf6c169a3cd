"""The cross-entropy in blocks against full logits, and sums against their parts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from model.architecture import KernelConfig
from model.batch import Batch
from model.cross_entropy import linear_cross_entropy, target_nats
from model.loss import LossSums, loss_sums, token_nats
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


BLOCKS = [
    *(KernelConfig(loss_blocks="tokens", loss_chunk_tokens=tokens) for tokens in (1, 8, 1000)),
    *(KernelConfig(loss_blocks="vocabulary", loss_block_vocabulary=entries) for entries in (1, 7, 20, 40, 1000)),
]


def _name(kernels: KernelConfig) -> str:
    return f"{kernels.loss_chunk_tokens} tokens" if kernels.loss_blocks == "tokens" else f"{kernels.loss_block_vocabulary} entries"


each_way = pytest.mark.parametrize("kernels", BLOCKS, ids=_name)


@each_way
def test_blocks_equal_full_logits_in_sums_and_gradients(kernels: KernelConfig) -> None:
    rows, head, targets, loss_weights = _inputs()

    def outcome(loss: Any) -> Any:
        def tripled(rows: Array, head: Array) -> tuple[Array, tuple[Array, Array]]:
            objective, nats, z = loss(rows, head, targets, loss_weights)
            return 3 * objective, (nats, z)  # a cotangent other than 1

        return jax.jit(jax.value_and_grad(tripled, argnums=(0, 1), has_aux=True))(rows, head)

    in_blocks = outcome(lambda rows, head, targets, weights: linear_cross_entropy(rows, head, targets, weights, Z_LOSS, kernels))
    assert largest_difference(in_blocks, outcome(_with_full_logits)) < 1e-6


@each_way
def test_each_token_costs_what_full_logits_say(kernels: KernelConfig) -> None:
    rows, head, targets, _ = _inputs()
    expected = -jax.nn.log_softmax(rows @ head)[jnp.arange(TOKENS), targets]
    assert largest_difference(target_nats(rows, head, targets, kernels), expected) < 1e-6


@each_way
def test_logits_far_from_zero_neither_overflow_nor_vanish(kernels: KernelConfig) -> None:
    rows, head, targets, loss_weights = _inputs()
    shifted = head + 300 * jnp.sign(head[:1])  # exp(300) is no float32

    def objective(rows: Array, head: Array) -> Array:
        return linear_cross_entropy(rows, head, targets, loss_weights, 0.0, kernels)[1]

    nats = np.asarray(jax.nn.logsumexp(rows @ shifted, axis=-1) - (rows @ shifted)[jnp.arange(TOKENS), targets])
    np.testing.assert_allclose(objective(rows, shifted), np.sum(nats * loss_weights), rtol=1e-6)


@each_way
def test_only_the_objective_carries_a_gradient(kernels: KernelConfig) -> None:
    rows, head, targets, loss_weights = _inputs()
    for index in (1, 2):
        gradient = jax.grad(lambda rows, i=index: linear_cross_entropy(rows, head, targets, loss_weights, Z_LOSS, kernels)[i])(rows)
        assert not np.any(gradient)


@each_way
def test_evaluation_and_training_report_the_same_sums(kernels: KernelConfig) -> None:
    rows, head, targets, loss_weights = _inputs()
    forward_only = linear_cross_entropy(rows, head, targets, loss_weights, Z_LOSS, kernels)
    with_gradient, _ = jax.vjp(lambda rows: linear_cross_entropy(rows, head, targets, loss_weights, Z_LOSS, kernels), rows)
    assert largest_difference(forward_only, with_gradient) < 1e-6


def test_both_ways_agree_in_bfloat16() -> None:
    rows, head, targets, loss_weights = _inputs()
    narrow = rows.astype(jnp.bfloat16), head.astype(jnp.bfloat16)

    def outcome(kernels: KernelConfig) -> Any:
        def objective(rows: Array, head: Array) -> Array:
            return linear_cross_entropy(rows, head, targets, loss_weights, Z_LOSS, kernels)[0]

        return jax.value_and_grad(objective, argnums=(0, 1))(*narrow)

    tokens, vocabulary = outcome(BLOCKS[1]), outcome(BLOCKS[4])
    assert vocabulary[1][0].dtype == vocabulary[1][1].dtype == jnp.bfloat16
    assert largest_difference(*(jax.tree.map(lambda a: a.astype(jnp.float32), tree) for tree in (vocabulary, tokens))) < 2**-7  # an ulp


@pytest.mark.parametrize("blocks", ["tokens", "vocabulary"])
def test_all_logits_never_exist_together(blocks: Any) -> None:
    tokens, vocabulary = 2048, 2000
    rows, head, targets, loss_weights = jnp.zeros((tokens, 8)), jnp.zeros((8, vocabulary)), jnp.zeros(tokens, jnp.int32), jnp.ones(tokens)
    kernels = KernelConfig(loss_blocks=blocks, loss_chunk_tokens=64, loss_block_vocabulary=64)

    def objective(rows: Array, head: Array) -> Array:
        return linear_cross_entropy(rows, head, targets, loss_weights, Z_LOSS, kernels)[0]

    memory = jax.jit(jax.grad(objective, argnums=(0, 1))).lower(rows, head).compile().memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes < tokens * vocabulary * 4 / 8  # an eighth of the logits


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
