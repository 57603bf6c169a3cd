"""Measuring sides in turn: every round makes one update of each side and one matmul, so that foreign load meets all alike."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from model.batch import Batch
from model.bench.shapes import Shape, Side
from model.config import LoaderConfig, ScheduleConfig, TrainConfig
from model.parameters import init, init_router_bias
from model.run import Run, resolve
from model.state import TrainState
from model.step import make_step, mean_gradient, start_state, to_device

WARM_UP_STEPS = 2  # the first pays for page faults, the second for what the first one freed
MATMUL_SIZES = (1024, 2048)
SCHEDULE_STEPS = 1000


class Compiled(NamedTuple):
    """A step that is ready, its state, and what getting there took.

    Attributes:
        planned_bytes: arguments, results and temporaries of one step as the compiler lays them out, donated memory once.
    """

    advance: Callable[[Any, Batch[Array]], tuple[Any, Array]]
    state: Any
    compile_s: float
    planned_bytes: int


class Timings(NamedTuple):
    """Seconds by round. `losses` are those of the first update: sides that compute the same agree in it."""

    compile_s: dict[Side, float]
    planned_bytes: dict[Side, int]
    step_s: dict[Side, list[float]]
    losses: dict[Side, float]
    matmul_flops_per_s: list[float]
    failed: dict[Side, str]


def measure(shape: Shape, sides: tuple[Side, ...], rounds: int, tell: Callable[[str], None]) -> Timings:
    """Compile every distinct side once, then time all of them `rounds` times in turn.

    Args:
        tell: hears what is being done; a bench of minutes must not be silent.
    """
    batch = to_device(batch_of(shape))
    ready: dict[tuple[Any, str], Compiled] = {}
    failed, losses = dict[Side, str](), dict[Side, float]()
    for side in sides:
        tell(f"compiling {shape.name}: {side.group}, {side.name}")
        try:
            if _key(side) not in ready:
                ready[_key(side)], losses[side] = _warm(_compile(shape, side, batch), batch)
        except jax.errors.JaxRuntimeError as error:  # out of device memory, mostly: the other sides can still be measured
            failed[side] = str(error).splitlines()[0]
    first = {_key(side): loss for side, loss in losses.items()}
    running = [side for side in sides if side not in failed]
    seconds: dict[tuple[Any, str], list[float]] = {key: [] for key in ready}
    matmul = _matmuls()
    rates = []
    for number in range(rounds):
        tell(f"round {number + 1} of {rounds}")
        rates.append(max(_rate(side) for side in matmul))
        for key, step in ready.items():
            started = time.perf_counter()
            state, loss = step.advance(step.state, batch)
            jax.block_until_ready((state, loss))
            seconds[key].append(time.perf_counter() - started)
            ready[key] = step._replace(state=state)
    return Timings(
        {side: ready[_key(side)].compile_s for side in running},
        {side: ready[_key(side)].planned_bytes for side in running},
        {side: seconds[_key(side)] for side in running},
        {side: first[_key(side)] for side in running},
        rates,
        failed,
    )


def _key(side: Side) -> tuple[Any, str]:
    return side.model, side.optimizer


def _compile(shape: Shape, side: Side, batch: Batch[Array]) -> Compiled:
    run = _run(shape, side)
    state, step = _recipe(run) if side.optimizer == "recipe" else _adam(run)
    started = time.perf_counter()
    compiled = step.lower(state, batch).compile()
    compile_s = time.perf_counter() - started
    memory = compiled.memory_analysis()
    planned = (
        memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes - memory.alias_size_in_bytes
        if memory
        else 0
    )

    def advance(state: Any, batch: Batch[Array]) -> tuple[Any, Array]:
        state, measures = compiled(state, batch)
        return state, measures.loss if side.optimizer == "recipe" else measures

    return Compiled(advance, state, compile_s, planned)


def _warm(step: Compiled, batch: Batch[Array]) -> tuple[Compiled, float]:
    state, first = step.state, 0.0
    for number in range(WARM_UP_STEPS):
        state, loss = step.advance(state, batch)
        first = float(loss) if number == 0 else first
    jax.block_until_ready(state)
    return step._replace(state=state), first


def _recipe(run: Run) -> tuple[TrainState, Any]:
    return start_state(run), make_step(run)


def _adam(run: Run) -> tuple[TrainState, Any]:
    """AdamW on every leaf: what peers are measured with."""
    optimizer = optax.adamw(3e-4)

    def step(state: TrainState, batch: Batch[Array]) -> tuple[TrainState, Array]:
        gradient, sums = mean_gradient(state.parameters, state.router_bias, run.model, batch)
        updates, moments = optimizer.update(gradient, state.optimizer, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        return TrainState(parameters, moments, sums.router.next_bias), sums.nats_sum / sums.weight_sum

    parameters = jax.jit(lambda: init(run.model, 0))()
    return TrainState(parameters, optimizer.init(parameters), init_router_bias(run.model)), jax.jit(step, donate_argnums=0)


def _run(shape: Shape, side: Side) -> Run:
    loader = LoaderConfig(batch_sequences=shape.batch_sequences, sequence_tokens=shape.sequence_tokens)
    return resolve(TrainConfig(model=side.model, schedule=ScheduleConfig(schedule_steps=SCHEDULE_STEPS), loader=loader))


def batch_of(shape: Shape) -> Batch[Any]:
    """Random tokens, one document a row."""
    size = (shape.batch_sequences, shape.sequence_tokens + 1)
    ids = np.random.default_rng(0).integers(0, shape.model.vocab_size, size, dtype=np.int32)
    return Batch(ids[:, :-1], ids[:, 1:], np.zeros(ids[:, 1:].shape, np.int32), np.ones(ids[:, 1:].shape, np.float32))


class _Matmul(NamedTuple):
    size: int
    operands: tuple[Array, Array]
    multiply: Callable[..., Array]


def _matmuls() -> list[_Matmul]:
    """Square products in the dtypes that training uses, warmed up."""
    found = []
    for dtype in (jnp.float32, jnp.bfloat16):
        for size in MATMUL_SIZES if jax.default_backend() == "cpu" else (8192,):
            a = jax.random.normal(jax.random.key(0), (size, size)).astype(dtype)
            multiply = jax.jit(jnp.matmul).lower(a, a).compile()
            jax.block_until_ready(multiply(a, a))
            found.append(_Matmul(size, (a, a), multiply))
    return found


def _rate(matmul: _Matmul) -> float:
    started = time.perf_counter()
    jax.block_until_ready(matmul.multiply(*matmul.operands))
    return 2 * matmul.size**3 / (time.perf_counter() - started)


def peak_of(device_kind: str, peaks: Mapping[str, float]) -> float | None:
    """A device's nominal peak in FLOP/s by the longest name that its kind contains, or None."""
    known = sorted((name for name in peaks if name.lower() in device_kind.lower()), key=len)
    return peaks[known[-1]] if known else None
