"""AdamW's update with the batch split over all devices of this process, each of which holds all parameters: how a CPU uses its cores."""

from collections.abc import Callable
from typing import Any

import jax
import optax
from jax import Array

from model.batch import Batch
from model.bench.measure import WARM_UP_STEPS, batch_of
from model.bench.shapes import Shape, Side
from model.config import LoaderConfig
from model.layout import laid_out
from model.mesh_config import MeshConfig
from model.parameters import init, init_router_bias
from model.state import TrainState
from model.step import mean_gradient


def warm_replicas(shape: Shape, side: Side) -> tuple[Callable[[], float], list[float]]:
    """A step that is compiled and warm, as a function from nothing to the loss before its update, and the losses so far."""
    loader = LoaderConfig(batch_sequences=shape.batch_sequences, sequence_tokens=shape.sequence_tokens)
    layout = laid_out(MeshConfig(replica=jax.device_count(), data=1), side.model, loader)
    optimizer = optax.adamw(3e-4)

    def build() -> TrainState:
        parameters = init(side.model, 0)
        return TrainState(parameters, optimizer.init(parameters), init_router_bias(side.model))

    def step(state: TrainState, batch: Batch[Array]) -> tuple[TrainState, Array]:
        gradient, sums = mean_gradient(state.parameters, state.router_bias, side.model, batch, layout)
        updates, moments = optimizer.update(gradient, state.optimizer, state.parameters)
        return TrainState(optax.apply_updates(state.parameters, updates), moments, sums.router.next_bias), sums.nats_sum / sums.weight_sum

    where = layout.of_state(jax.eval_shape(build))
    host = batch_of(shape)
    batch = layout.batch(shape.batch_sequences, lambda rows: Batch(*(array[rows] for array in host)))
    state: list[Any] = [jax.jit(build, out_shardings=where)()]
    compiled = jax.jit(step, donate_argnums=0, out_shardings=(where, layout.everywhere)).lower(state[0], batch).compile()

    def advance() -> float:
        state[0], loss = compiled(state[0], batch)
        jax.block_until_ready(state[0])
        return float(loss)

    return advance, [advance() for _ in range(WARM_UP_STEPS)]
