"""The artifact of a finished run, and its arrays read back.

`checkpoint/model.safetensors` holds parameters and router bias together: the bias belongs to exactly these weights.
`checkpoint/optimizer.safetensors` lets a branch go on; who only evaluates does not read it.
"""

from jax import Array

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import identity_of
from infra.artifacts.program import Stats
from infra.artifacts.writer import Writer
from model import gang
from model.arrays import Arrays, decode, encode
from model.layout import Layout
from model.loop import Position
from model.parameters import Params, count
from model.pieces import assembled
from model.run import CONFIG, FLOPS_CONVENTIONS, STATE, Data, Run, RunState
from model.state import TrainState, from_arrays, to_arrays
from model.step import state_shapes

MODEL = "checkpoint/model.safetensors"
OPTIMIZER = "checkpoint/optimizer.safetensors"


class TrainStats(Stats):
    """A finished run in numbers; tokens and FLOPs include those of the parent a branch left."""

    steps: int
    tokens: int
    flops: float
    total_parameters: int
    active_parameters: int
    final_loss: float
    held_out: dict[str, float]  # micro and macro measures after the last update; empty without held-out text


def write_finished(run: Run, data: Data, position: Position, out: Writer) -> TrainStats:
    """Write config, rows, final state and its description; of a gang, process 0 alone does, with the whole state in its memory."""
    state = RunState(
        step=position.step,
        tokens=run.tokens_after(position.step),
        flops=run.flops_after(position.step),
        flops_conventions=FLOPS_CONVENTIONS,
        data=data,
    )
    arrays = to_arrays(position.state)
    if gang.is_leader():
        out.write_json(CONFIG, identity_of(run))
        position.tracker.write(out)
        _write_state(arrays, out)
        out.write_json(STATE, state.model_dump(mode="json"))
    parameters = count(run.model)
    evals = position.tracker.evals
    return TrainStats(
        steps=position.step - run.start_step,
        tokens=state.tokens,
        flops=state.flops,
        total_parameters=parameters.total,
        active_parameters=parameters.active,
        final_loss=position.tracker.metrics[-1]["loss"],
        held_out={name: value for name, value in (evals[-1] if evals else {}).items() if name.startswith(("micro_", "macro_"))},
    )


def read_model(checkpoint: Artifact, run: Run) -> tuple[Params, Array]:
    """Parameters and router bias of a finished run, strictly those its config declares."""
    arrays = _read(checkpoint, MODEL)
    shapes = state_shapes(run)
    found = from_arrays(f"{checkpoint.url}/{MODEL}", arrays, {"parameters": shapes.parameters, "router_bias": shapes.router_bias})
    return found["parameters"], found["router_bias"]


def read_state(checkpoint: Artifact, run: Run, layout: Layout) -> TrainState:
    """The whole train state of a finished run, laid out as a branch takes it over."""
    arrays = {**_read(checkpoint, MODEL), **_read(checkpoint, OPTIMIZER)}
    state: TrainState = assembled(f"{checkpoint.url}/checkpoint", arrays, layout.shaped(state_shapes(run)))
    return state


def _write_state(arrays: Arrays, out: Writer) -> None:
    for name, is_inside in ((MODEL, lambda key: not key.startswith("optimizer/")), (OPTIMIZER, lambda key: key.startswith("optimizer/"))):
        with out.open(name) as stream:
            stream.write(encode({key: array for key, array in arrays.items() if is_inside(key)}))


def _read(checkpoint: Artifact, name: str) -> Arrays:
    with checkpoint.open(name) as stream:
        return decode(stream.read())
