"""The training loop: from a start state to the run's last update, through any number of deaths on the way.

A run is a function of (seed, step). Batch i is read by its number, rows are kept in the checkpoint's journal, and nothing
that depends on the clock enters a result; so a run that was killed and resumed ends in the bytes of one that was not.
"""

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
from jax import Array

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import identity_of
from infra.artifacts.manifest import canonical_json
from infra.artifacts.writer import Writer
from model import gang
from model.architecture import AttentionBackend
from model.attention_choice import settled
from model.batch import Batch
from model.batches import batch_at
from model.checkpoint import CheckpointStore
from model.config import CheckpointPolicy
from model.eval.held_out import HeldOutScorer
from model.eval.scores import summarize
from model.growth import rate_share
from model.layout import Layout, laid_out
from model.loader import MixtureLoader
from model.mesh_config import MeshConfig
from model.pieces import Assembly, own_pieces
from model.read_ahead import ReadAhead
from model.run import FLOPS_CONVENTIONS, Data, Run, kept_folder
from model.state import TrainState
from model.step import StepMeasures, make_step, state_shapes, to_device
from model.tracker import Row, Tracker


class NonFiniteLossError(ArithmeticError):
    """A step's loss or gradient is no number; nothing after it is worth computing."""


class RadiusDriftError(ArithmeticError):
    """A matrix that moves on a sphere has left it."""


MAX_RADIUS_DRIFT = 1e-4  # rounding stays under 1e-6; a norm over the wrong axes or one shard gives 1e-3 to 1e-2 in a step


class Position(NamedTuple):
    """Where a loop stands: `step` updates were made."""

    step: int
    state: TrainState
    tracker: Tracker


def run_to_end(
    run: Run,
    data: Data,
    policy: CheckpointPolicy,
    mesh: MeshConfig,
    begin: Callable[[Layout], TrainState],
    store: Artifact,
    mixture: Artifact,
    out: Writer,
) -> Position:
    """Make every update that is still missing, from the newest checkpoint in the scratch directory or from `begin`.

    Args:
        begin: the state before the run's first update.

    Every process of a gang runs this; each reads its rows of a batch and keeps its part of the state.

    Raises:
        RendezvousFailed: the processes of this run did not come together.
        ValueError: model or batch can't be split over the mesh; names the field.
        NonFiniteLossError: at the first update whose loss or gradient is not finite.
        RadiusDriftError: at the first update after which a matrix on a sphere has another norm than it started with.
        CheckpointMismatchError: the scratch directory holds another run's checkpoints.
    """
    gang.join()
    checkpoints = checkpoints_of(run, data, out.scratch_url)
    checkpoints.require_own()  # what can be refused is, before a probe of some kernel is compiled
    loader = MixtureLoader(store, mixture, run.loader)
    layout = laid_out(mesh, run.model, run.loader)
    model, attention = settled(run.model, run.loader.sequence_tokens)
    scorers = [HeldOutScorer(run.model, store, run.held_out, layout=layout)]
    if run.model.capacity_factor is not None:
        scorers.append(HeldOutScorer(run.model, store, run.held_out, layout=layout, drops="as_trained"))
    step_of = make_step(run.model_copy(update={"model": model}), layout)
    position = _resume(run, checkpoints, layout, begin)
    heart = _Heartbeat(run, out)

    def score(position: Position) -> None:
        def beat(done: int) -> None:
            heart.beat(position.step)

        found = [scorer.score(position.state.parameters, position.state.router_bias, heartbeat=beat) for scorer in scorers]
        if found[0]:
            position.tracker.log_eval({**_spent(run, position.step), **_held_out_row(*map(summarize, found))})

    if position.step == run.start_step:
        score(position)
    due = _checkpoint_due(policy)
    with ReadAhead(loader, steps=run.end_step - run.start_step) as ahead:
        for step in range(position.step, run.end_step):
            started = time.monotonic()
            state, measures = step_of(position.state, _batch(run, step, ahead, layout))
            measured = {name: float(value) for name, value in jax.device_get(measures)._asdict().items()}
            position = Position(step + 1, state, position.tracker)
            row = _row(run, step, attention.backend, measured)
            _check_finite(row)
            if _is_due(position.step, run.log_every_steps, run):
                position.tracker.log_step(row)
            heart.beat(position.step, seconds=time.monotonic() - started, loss=measured["loss"])
            if _is_due(position.step, run.eval_every_steps, run):
                score(position)
            if position.step == run.end_step or gang.leader_says(due(position.step)):
                checkpoints.save(position.step, own_pieces(position.state), position.tracker.journal())
                if gang.is_leader():  # who has committed it
                    out.saved()
            if position.step in run.keep_steps:
                kept = checkpoints_of(run, data, kept_url(out.scratch_url, position.step))
                kept.save(position.step, own_pieces(position.state), position.tracker.journal())
    return position


def checkpoints_of(run: Run, data: Data, scratch_url: str) -> CheckpointStore:
    """The checkpoints of one run: whose they are is 16 hex characters over everything that decides its bytes."""
    described = {**identity_of(run), "data": data.model_dump()}
    return CheckpointStore(scratch_url, hashlib.sha256(canonical_json(described)).hexdigest()[:16], described)


def kept_url(scratch_url: str, step: int) -> str:
    """Where a running job has the state of a step that its artifact keeps."""
    return f"{scratch_url.rstrip('/')}/{kept_folder(step)}"


def _resume(run: Run, checkpoints: CheckpointStore, layout: Layout, begin: Callable[[Layout], TrainState]) -> Position:
    like = layout.shaped(state_shapes(run))
    found = checkpoints.newest(lambda: Assembly(like))
    if found is None:
        return Position(run.start_step, begin(layout), Tracker())
    state: TrainState = found.taken.tree(f"the checkpoint of step {found.step}")
    return Position(found.step, state, Tracker.restore(found.journal))


def _batch(run: Run, step: int, ahead: ReadAhead, layout: Layout) -> Batch[Array]:
    own = step - run.start_step
    if layout.is_alone:
        return to_device(ahead.batch(own))
    return layout.batch(batch_at(run.loader, own), lambda rows: ahead.batch(own, rows))


def _is_due(step: int, every_steps: int | None, run: Run) -> bool:
    """Whether a row is due after `step` updates: on the grid, and at the run's end."""
    own = step - run.start_step
    return step == run.end_step or (every_steps is not None and own % every_steps == 0)


def _row(run: Run, step: int, attention: AttentionBackend, measured: Mapping[str, float]) -> Row:
    """A row of `metrics.jsonl`: loss and gradient before update `step`, counters after it; `learning_rate` is a share of the peak."""
    share = rate_share(run, step)
    rates = {
        "muon_learning_rate": share * run.optimizer.muon_learning_rate,
        "head_learning_rate": share * run.optimizer.peak_head_learning_rate,
        "adam_learning_rate": share * run.optimizer.adam_learning_rate,
    }
    return {**_spent(run, step + 1), "attention_backend": attention, "learning_rate": share, **rates, **measured}


def _held_out_row(dropless: Row, as_trained: Row | None = None) -> Row:
    """What `evals.jsonl` says of a model: the dropless scores, and beside them the averages of those under the capacity it trains with."""
    row = {"drop_mode": "dropless", **dropless}
    if as_trained is not None:
        row |= {f"as_trained_{name}": value for name, value in as_trained.items() if name.startswith(("macro_", "micro_"))}
    return row


def _spent(run: Run, step: int) -> Row:
    return {"step": step, "tokens": run.tokens_after(step), "flops": run.flops_after(step), "flops_conventions": FLOPS_CONVENTIONS}


def _check_finite(row: Row) -> None:
    broken = [name for name in StepMeasures._fields if not math.isfinite(row[name])]
    if broken:
        raise NonFiniteLossError(
            f"step {row['step']}: {', '.join(f'{name} is {row[name]}' for name in broken)} at {row['learning_rate']:.3g} of the peak "
            "learning rate; lower the rates or lengthen the warm-up, and look at the documents of this step's batch"
        )
    if row["radius_drift"] > MAX_RADIUS_DRIFT:
        raise RadiusDriftError(
            f"step {row['step']}: a matrix that must keep its norm is off by {row['radius_drift']:.3g} of it; the norm is computed wrongly "
            "on these devices, or something else wrote the parameters. Resume from an older checkpoint on other devices and compare"
        )


def _checkpoint_due(policy: CheckpointPolicy) -> Callable[[int], bool]:
    last = [time.monotonic()]

    def due(step: int) -> bool:
        if time.monotonic() - last[0] < policy.every_s and not (policy.every_steps and step % policy.every_steps == 0):
            return False
        last[0] = time.monotonic()
        return True

    return due


class _Heartbeat:
    """Tells the outside how far the run is; speed lives here and in no artifact."""

    def __init__(self, run: Run, out: Writer) -> None:
        self._run, self._out = run, out
        self._measures: dict[str, float] = {}

    def beat(self, step: int, *, seconds: float | None = None, loss: float | None = None) -> None:
        if seconds is not None and loss is not None:
            self._measures = {"tokens_per_second": self._run.tokens_at(step - 1) / max(seconds, 1e-9), "loss": loss}
        self._out.progress(step - self._run.start_step, self._run.end_step - self._run.start_step, "steps", **self._measures)
