"""One update: a pure function from (state, batch) to (state, measures), compiled once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import PartitionSpec

from model.architecture import ModelConfig
from model.batch import Batch, HostBatch
from model.growth import growth_of
from model.layout import Layout
from model.loss import LossSums, loss_sums
from model.optimizer import make_optimizer
from model.parameters import declare, init, init_router_bias
from model.run import Run
from model.shards import WHOLE, Axes, total
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


ONCE_ON_A_CPU = {"xla_backend_optimization_level": 1}
"""XLA's options for a program that runs once: at the usual level LLVM unrolls every draw, 12.8 CPU-seconds against 2.1 for two layers."""

Step = Callable[[TrainState, Batch[Array]], tuple[TrainState, StepMeasures]]


def start_state(run: Run, layout: Layout | None = None) -> TrainState:
    """The state before the first update of a run from scratch; a pure function of the run's seed, wherever its arrays lie."""
    where = None if layout is None or layout.is_alone else layout.of_state(state_shapes(run))
    options = ONCE_ON_A_CPU if jax.default_backend() == "cpu" else None
    # The seed is an argument, so one program starts every seed.
    state: TrainState = jax.jit(_builder(run), out_shardings=where, compiler_options=options)(run.seed)
    return state


def state_shapes(run: Run) -> TrainState:
    """Structure, shapes and dtypes of a run's state; a branch's are those of its run from scratch."""
    shapes: TrainState = jax.eval_shape(_builder(run), 0)
    return shapes


def _builder(run: Run) -> Callable[[Any], TrainState]:
    optimizer = make_optimizer(run.optimizer, run.schedule, declare(run.model), growth_of(run))

    def build(seed: Any) -> TrainState:
        params = init(run.model, seed)
        return TrainState(params, optimizer.init(params), init_router_bias(run.model))

    return build


def make_step(run: Run, layout: Layout | None = None) -> Step:
    """Compile-ready step of a run. It donates its state: the argument is gone after the call.

    Args:
        layout: where state and batch lie; None on one device.
    """
    leaves = declare(run.model)
    placing = None if layout is None or layout.is_alone else layout.whole_matrices
    optimizer = make_optimizer(run.optimizer, run.schedule, leaves, growth_of(run), placing)

    def step(state: TrainState, batch: Batch[Array]) -> tuple[TrainState, StepMeasures]:
        gradient, sums = mean_gradient(state.parameters, state.router_bias, run.model, batch, layout)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.parameters)
        params = optax.apply_updates(state.parameters, updates)
        # Before, in case somebody else wrote the parameters; after, in case the update is wrong here.
        drift = jnp.maximum(radius_drift(state.optimizer, state.parameters, leaves), radius_drift(optimizer_state, params, leaves))
        return TrainState(params, optimizer_state, sums.router.next_bias), _measures(gradient, sums, drift, run.model)

    if layout is None or layout.is_alone:
        return jax.jit(step, donate_argnums=0)
    return jax.jit(step, donate_argnums=0, out_shardings=(layout.of_state(state_shapes(run)), layout.everywhere))


def to_device(batch: HostBatch) -> Batch[Array]:
    """A loader's batch as the model takes it."""
    return Batch(*(jnp.asarray(array) for array in batch))


def mean_gradient(
    params: Any, router_bias: Array, model: ModelConfig, batch: Batch[Array], layout: Layout | None = None
) -> tuple[Any, LossSums]:
    """Gradient of the mean objective over a batch: sums first, one division. Laid out as the parameters are."""
    if layout is None or layout.is_alone:
        gradient, sums = _gradient_of_sum(params, router_bias, model, batch, None)
        return jax.tree.map(lambda g: g / sums.weight_sum, gradient), sums
    specs, whole = layout.mapped_specs(), PartitionSpec()

    def on_one_device(params: Any, router_bias: Array, batch: Batch[Array]) -> tuple[Any, LossSums]:
        gradient, own = _gradient_of_sum(params, router_bias, model, batch, layout)
        sums = _added_up(own, layout.shards.axes)
        gradient = layout.shards.summed_gradients(layout.leaves, gradient)
        return jax.tree.map(lambda g: g / sums.weight_sum, gradient), sums

    mapped: tuple[Any, LossSums] = jax.shard_map(
        on_one_device,
        mesh=layout.mesh,
        in_specs=(specs, whole, layout.of_batch.spec),
        out_specs=(specs, whole),
        axis_names=layout.mapped_axes,
        check_vma=False,  # attention kernels of accelerators don't say how their results vary; the tests compare with one device
    )(params, router_bias, batch)
    return mapped


def _gradient_of_sum(
    params: Any, router_bias: Array, model: ModelConfig, batch: Batch[Array], layout: Layout | None
) -> tuple[Any, LossSums]:
    shards = WHOLE if layout is None else layout.shards

    def objective(params: Any) -> tuple[Array, LossSums]:
        sums = loss_sums(params, router_bias, model, batch, shards=shards)
        return sums.objective_sum, sums

    found: tuple[Any, LossSums] = jax.grad(objective, has_aux=True)(params)
    return found


def _added_up(own: LossSums, axes: Axes) -> LossSums:
    """The sums of all shards; router statistics cover them already."""
    objective, nats, z, weight = (total(x, axes) for x in (own.objective_sum, own.nats_sum, own.z_sum, own.weight_sum))
    return LossSums(objective, nats, z, weight, own.router)


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
