"""The artifact of a finished run, and its arrays read back.

`checkpoint/model.safetensors` holds parameters and router bias together: the bias belongs to exactly these weights.
`checkpoint/optimizer.safetensors` lets a branch go on; who only evaluates does not read it.
"""

from typing import Any

from jax import Array
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import identity_of
from infra.artifacts.program import Stats
from infra.artifacts.writer import Writer
from model import gang
from model.arrays import Arrays, ArraysMismatchError, decode, encode
from model.layout import Layout
from model.loop import Position, checkpoints_of, kept_url
from model.parameters import Params, count
from model.pieces import assembled, whole_arrays
from model.run import CONFIG, FLOPS_CONVENTIONS, Data, Run, RunState, kept_folder
from model.state import TrainState, from_arrays, to_arrays
from model.step import state_shapes

FINAL = "checkpoint"
MODEL = f"{FINAL}/model.safetensors"
OPTIMIZER = f"{FINAL}/optimizer.safetensors"


class TrainStats(Stats):
    """A finished run in numbers; tokens and FLOPs include those of the parent a branch left."""

    steps: int
    tokens: int
    flops: float
    total_parameters: int
    active_parameters: int
    final_loss: float
    held_out: dict[str, float]  # micro and macro measures after the last update; empty without held-out text


def write_finished(run: Run, data: Data, tokenizer: str, position: Position, out: Writer) -> TrainStats:
    """Write config, rows, final state and its description; of a gang, process 0 alone does, with the whole state in its memory.

    Args:
        tokenizer: digest of the one that cut the data.
    """

    def described(step: int) -> RunState:
        tokens, flops = run.tokens_after(step), run.flops_after(step)
        return RunState(step=step, tokens=tokens, flops=flops, flops_conventions=FLOPS_CONVENTIONS, data=data, tokenizer=tokenizer)

    state = described(position.step)
    arrays = to_arrays(position.state)
    if gang.is_leader():
        out.write_json(CONFIG, identity_of(run))
        position.tracker.write(out)
        _write_state(FINAL, arrays, state, out)
    for step in run.keep_steps:
        kept = _kept_arrays(run, data, step, out)
        if gang.is_leader():
            _write_state(kept_folder(step), kept, described(step), out)
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


def read_state(checkpoint: Artifact, run: Run, layout: Layout, *, kept_step: int | None = None) -> TrainState:
    """The whole train state of a finished run, laid out as a branch takes it over.

    Args:
        kept_step: that of a step which the run kept; None: the final one.
    """
    folder = FINAL if kept_step is None else kept_folder(kept_step)
    arrays = {**_read(checkpoint, f"{folder}/model.safetensors"), **_read(checkpoint, f"{folder}/optimizer.safetensors")}
    state: TrainState = assembled(f"{checkpoint.url}/{folder}", arrays, layout.shaped(state_shapes(run)))
    return state


def _write_state(folder: str, arrays: Arrays, state: RunState, out: Writer) -> None:
    parts: dict[str, dict[str, NDArray[Any]]] = {"model": {}, "optimizer": {}}
    for key, array in arrays.items():
        parts["optimizer" if key.startswith("optimizer/") else "model"][key] = array
    for name, part in parts.items():
        with out.open(f"{folder}/{name}.safetensors") as stream:
            stream.write(encode(part))
    out.write_json(f"{folder}/state.json", state.model_dump(mode="json"))


def _kept_arrays(run: Run, data: Data, step: int, out: Writer) -> Arrays:
    """The state after `step` updates, whole, for process 0; the others have nothing to read."""
    url = kept_url(out.scratch_url, step)
    found = checkpoints_of(run, data, url).newest(lambda names: gang.is_leader())
    if found is None:
        raise ArraysMismatchError(f"{url} has lost the state after {step} updates; remove the checkpoints beside it and train again")
    return whole_arrays(url, found.arrays, state_shapes(run)) if gang.is_leader() else {}


def _read(checkpoint: Artifact, name: str) -> Arrays:
    with checkpoint.open(name) as stream:
        return decode(stream.read())
