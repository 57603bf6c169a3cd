"""One update: a pure function from (state, batch) to (state, measures), compiled once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from model.architecture import ModelConfig
from model.batch import Batch, HostBatch
from model.growth import growth_of
from model.loss import LossSums, loss_sums
from model.optimizer import make_optimizer
from model.parameters import declare, init, init_router_bias
from model.run import Run
from model.sphere import radius_drift
from model.state import TrainState


class StepMeasures(NamedTuple):
    """What one update says about itself; float32 scalars.

    Attributes:
        loss: nats per weighted token of this batch, before the update.
        gradient_norm: of the whole gradient, before any optimizer.
        router_max_violation: worst layer's (largest load of an expert / mean load) - 1; 0 is perfect balance.
        router_min_entropy: worst layer's load entropy over ln(experts); 1 is perfect balance.
        radius_drift: largest relative departure, before or after the update, of a matrix on a sphere from the norm it started with.
        router_drop_fraction: choices that found their expert full, over all choices of all layers; 0 without a capacity.
    """

    loss: Array
    gradient_norm: Array
    radius_drift: Array
    router_max_violation: Array
    router_min_entropy: Array
    router_drop_fraction: Array


Step = Callable[[TrainState, Batch[Array]], tuple[TrainState, StepMeasures]]


def start_state(run: Run) -> TrainState:
    """The state before the first update of a run from scratch; a pure function of the run's seed."""
    optimizer = make_optimizer(run.optimizer, run.schedule, declare(run.model), growth_of(run))

    def build(seed: Any) -> TrainState:
        params = init(run.model, seed)
        return TrainState(params, optimizer.init(params), init_router_bias(run.model))

    state: TrainState = jax.jit(build)(run.seed)  # the seed is an argument, so one program starts every seed
    return state


def state_shapes(run: Run) -> TrainState:
    """Structure, shapes and dtypes of a run's state; a branch's are those of its run from scratch."""
    shapes: TrainState = jax.eval_shape(lambda: start_state(run))
    return shapes


def make_step(run: Run) -> Step:
    """Compile-ready step of a run. It donates its state: the argument is gone after the call."""
    leaves = declare(run.model)
    optimizer = make_optimizer(run.optimizer, run.schedule, leaves, growth_of(run))

    def step(state: TrainState, batch: Batch[Array]) -> tuple[TrainState, StepMeasures]:
        gradient, sums = mean_gradient(state.parameters, state.router_bias, run.model, batch)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.parameters)
        params = optax.apply_updates(state.parameters, updates)
        # Before, in case somebody else wrote the parameters; after, in case the update is wrong here.
        drift = jnp.maximum(radius_drift(state.optimizer, state.parameters, leaves), radius_drift(optimizer_state, params, leaves))
        return TrainState(params, optimizer_state, sums.router.next_bias), _measures(gradient, sums, drift, run.model)

    return jax.jit(step, donate_argnums=0)


def to_device(batch: HostBatch) -> Batch[Array]:
    """A loader's batch as the model takes it."""
    return Batch(*(jnp.asarray(array) for array in batch))


def mean_gradient(params: Any, router_bias: Array, model: ModelConfig, batch: Batch[Array]) -> tuple[Any, LossSums]:
    """Gradient of the mean objective over a batch: sums first, one division."""

    def objective(params: Any) -> tuple[Array, LossSums]:
        sums = loss_sums(params, router_bias, model, batch)
        return sums.objective_sum, sums

    gradient, sums = jax.grad(objective, has_aux=True)(params)
    return jax.tree.map(lambda g: g / sums.weight_sum, gradient), sums


def _measures(gradient: Any, sums: LossSums, drift: Array, model: ModelConfig) -> StepMeasures:
    load = sums.router.load
    violation = jnp.max(load, axis=-1) / jnp.maximum(jnp.mean(load, axis=-1), 1e-9) - 1
    entropy = sums.router.entropy / jnp.log(max(model.experts, 2))
    return StepMeasures(
        loss=sums.nats_sum / sums.weight_sum,
        gradient_norm=optax.tree.norm(gradient),
        radius_drift=drift,
        router_max_violation=jnp.max(violation),
        router_min_entropy=jnp.min(entropy),
        router_drop_fraction=jnp.sum(sums.router.dropped) / jnp.maximum(jnp.sum(load), 1),
    )
