"""How the tokens of a batch are scored, on one device or over a mesh."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec
from numpy.typing import NDArray

from model.architecture import ModelConfig
from model.batch import Batch, HostBatch, filled_up
from model.layout import Layout
from model.loss import token_nats
from model.step import to_device

Scorer = Callable[[Any, Array, HostBatch], NDArray[Any]]
"""(parameters, router bias, batch) to the nats of every target [batch, tokens], float32 on the host of every process."""


def scorer_of(model: ModelConfig, layout: Layout) -> Scorer:
    """Compile-ready scores of a model's batches. Over a mesh, rows are split as in training, filled up where they don't divide."""

    def on_one_device(params: Any, router_bias: Array, batch: Batch[Array]) -> Array:
        return token_nats(params, router_bias, model, batch, shards=layout.shards)

    if layout.is_alone:
        alone = jax.jit(on_one_device)
        return lambda params, router_bias, batch: np.asarray(jax.device_get(alone(params, router_bias, to_device(batch))))
    rows = layout.of_batch.spec
    mapped = jax.shard_map(
        on_one_device,
        mesh=layout.mesh,
        in_specs=(layout.mapped_specs(), PartitionSpec(), rows),
        out_specs=rows,
        axis_names=layout.mapped_axes,
        check_vma=False,
    )
    spread = jax.jit(mapped, out_shardings=layout.everywhere)

    def score(params: Any, router_bias: Array, batch: HostBatch) -> NDArray[Any]:
        sequences, filled = len(batch.tokens), filled_up(batch, layout.shards.count)
        nats = spread(params, router_bias, layout.batch(len(filled.tokens), lambda rows: Batch(*(array[rows] for array in filled))))
        return np.asarray(jax.device_get(nats))[:sequences]

    return score
