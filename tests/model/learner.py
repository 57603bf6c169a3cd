"""Builders for the learner's tests: variants of the tiny model, random weights away from their start, packed batches."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from model.architecture import KernelConfig, ModelConfig
from model.batch import Batch
from model.parameters import Params, declare, init
from model.presets import tiny_model
from model.transformer import forward

CHEAP = {"moe_backend": "dense", "attention_backend": "plain"}
"""Kernels that compile fastest; the others are held to them by their own tests."""


def variant(*, kernels: dict[str, Any] | None = None, **changes: Any) -> ModelConfig:
    """The tiny model with fields changed, validated."""
    fields = tiny_model().model_dump() | changes
    return ModelConfig(**(fields | {"kernels": KernelConfig(**(fields["kernels"] | (kernels or {})))}))


@functools.cache
def weights(config: ModelConfig, seed: int = 0) -> Params:
    """Initialised weights, shaken so that gains and zero-started gates matter too, and doubled so that routing is decided."""
    start, keys = init(config, seed), iter(jax.random.split(jax.random.key(seed + 1), 64))
    shaken: Params = jax.tree.map(lambda leaf, array: 2 * array + 0.1 * jax.random.normal(next(keys), leaf.shape), declare(config), start)
    return shaken


def bias(config: ModelConfig, seed: int = 0) -> jax.Array:
    return 0.1 * jax.random.normal(jax.random.key(seed + 7), (config.layers, config.experts))


def packed(config: ModelConfig, seed: int = 0, rows: int = 2, tokens: int = 16, padding: int = 2) -> Batch[jax.Array]:
    """Rows of a few documents and a padded end; the last token of a document has no weight."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, config.vocab_size, (rows, tokens + 1), dtype=np.int32)
    segments = np.cumsum(rng.random((rows, tokens)) < 0.15, axis=1).astype(np.int32)
    segments[:, tokens - padding :] = -1
    last = np.concatenate([segments[:, 1:] != segments[:, :-1], np.ones((rows, 1), bool)], axis=1)
    loss_weights = np.where(last | (segments < 0), 0, 1).astype(np.float32)
    return Batch(*(jnp.asarray(a) for a in (ids[:, :-1], ids[:, 1:], segments, loss_weights)))


@functools.partial(jax.jit, static_argnums=2)
def hidden_states(params: Params, router_bias: jax.Array, config: ModelConfig, tokens: Any, segment_ids: Any) -> jax.Array:
    return forward(params, router_bias, config, tokens, segment_ids)[0]


def largest_difference(left: Any, right: Any) -> float:
    """Largest absolute difference of two trees, each leaf relative to its largest entry on the right."""
    return max(
        float(np.max(np.abs(np.asarray(a) - np.asarray(b))) / (np.max(np.abs(np.asarray(b))) + 1e-30))
        for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    )
