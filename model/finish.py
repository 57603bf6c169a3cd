"""The artifact of a finished run, and its arrays read back.

`checkpoint/model.safetensors` holds parameters and router bias together: the bias belongs to exactly these weights.
`checkpoint/optimizer.safetensors` lets a branch go on; who only evaluates does not read it.
"""

from contextlib import nullcontext

import numpy as np
from jax import Array

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import identity_of
from infra.artifacts.program import Stats
from infra.artifacts.writer import Writer
from model import gang
from model.array_files import places_in, read_box, slabs_of
from model.arrays import Arrays, ArraysMismatchError, decode
from model.layout import Layout
from model.loop import Position, checkpoints_of, kept_url
from model.parameters import Params, count
from model.pieces import Assembly
from model.run import CONFIG, FLOPS_CONVENTIONS, Data, Run, RunState, kept_folder
from model.state import TrainState, from_arrays, named_leaves
from model.step import state_shapes
from model.whole_state import WholeState, write_whole

FINAL = "checkpoint"
STATE_FILES = ("model.safetensors", "optimizer.safetensors")
MODEL, OPTIMIZER = (f"{FINAL}/{name}" for name in STATE_FILES)


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
    """Write config, rows, final state and its description. All processes of a gang call it; process 0 writes.

    States are put together from the checkpoints that the loop has committed, a slab at a time: no process has one in memory.

    Args:
        tokenizer: digest of the one that cut the data.

    Raises:
        ArraysMismatchError: storage has lost a state that the run had committed.
    """

    def described(step: int) -> RunState:
        tokens, flops = run.tokens_after(step), run.flops_after(step)
        return RunState(step=step, tokens=tokens, flops=flops, flops_conventions=FLOPS_CONVENTIONS, data=data, tokenizer=tokenizer)

    state = described(position.step)
    if gang.is_leader():
        out.write_json(CONFIG, identity_of(run))
        position.tracker.write(out)
    _write_state(FINAL, out.scratch_url, run, state, out)
    for step in run.keep_steps:
        _write_state(kept_folder(step), kept_url(out.scratch_url, step), run, described(step), out)
    gang.all_agree(True)  # nobody leaves before process 0 has written all
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
    """The whole train state of a finished run, laid out as a branch takes it over; each process reads its part.

    Args:
        kept_step: that of a step which the run kept; None: the final one.
    """
    folder = FINAL if kept_step is None else kept_folder(kept_step)
    assembly = Assembly(layout.shaped(state_shapes(run)))
    for name in STATE_FILES:
        with checkpoint.open(f"{folder}/{name}") as stream:
            for key, place in places_in(stream).items():
                if not assembly.wants(key, place.shape, place.dtype):
                    continue
                for box in slabs_of(place):
                    if assembly.needs(key, place.shape, box):
                        assembly.take(key, place.shape, box, read_box(stream, place, box))
    state: TrainState = assembly.tree(f"{checkpoint.url}/{folder}")
    return state


def _write_state(folder: str, scratch_url: str, run: Run, state: RunState, out: Writer) -> None:
    """Write the state of a committed step.

    Args:
        scratch_url: where the checkpoints lie that have it.
    """

    def beat() -> None:
        out.progress(run.end_step - run.start_step, run.end_step - run.start_step, "steps")

    urls = checkpoints_of(run, state.data, scratch_url).whole_at(state.step, beat)
    if urls is None:
        raise ArraysMismatchError(
            f"{scratch_url} has lost the state after {state.step} updates; remove the checkpoints beside it and train again"
        )
    shapes = state_shapes(run)
    declared = {name: (tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in named_leaves(shapes).items()}
    parts = ({name for name in declared if not name.startswith("optimizer/")}, {name for name in declared if name.startswith("optimizer/")})
    with WholeState(scratch_url, urls, shapes) if gang.is_leader() else nullcontext() as whole:
        for file, names in zip(STATE_FILES, parts, strict=True):
            write_whole(f"{folder}/{file}", {name: declared[name] for name in names}, whole, out, beat)
    if gang.is_leader():
        out.write_json(f"{folder}/state.json", state.model_dump(mode="json"))


def _read(checkpoint: Artifact, name: str) -> Arrays:
    with checkpoint.open(name) as stream:
        return decode(stream.read())
