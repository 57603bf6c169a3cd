"""A run, fully resolved, and how a finished one is read back.

`config.json` holds the `Run`, `checkpoint/state.json` the `RunState`; both are the same for a run from scratch and for a branch.
"""

import dataclasses
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import ProgramConfig, identity_of
from model.architecture import ModelConfig
from model.batches import batch_at, tokens_before
from model.config import HeldOutConfig, LoaderConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from model.flops import PUBLISHED, train_flops_per_token

CONFIG = "config.json"
STATE = "checkpoint/state.json"

DropMode = Literal["dropless"]
"""How the experts treat an overfull load. Every back end here gives each token all its experts."""

FLOPS_CONVENTIONS: dict[str, Any] = dataclasses.asdict(PUBLISHED)


class Data(BaseModel):
    """Which data a number belongs to: digests of the store and the mixture."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str
    mixture: str


class Origin(BaseModel):
    """Where a branch left its parent, and what had been spent up to there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parent: str  # digest of the parent's artifact
    step: int
    tokens: int
    flops: float


class Run(ProgramConfig):
    """Everything that decides what a run computes, the data apart.

    Steps count on through branches: this run makes the updates `schedule.start_step` up to `end_step`, exclusive.
    """

    model: ModelConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    loader: LoaderConfig
    held_out: HeldOutConfig
    seed: int
    end_step: int
    log_every_steps: int
    eval_every_steps: int | None
    keep_steps: tuple[int, ...] = ()
    origin: Origin | None = None

    @property
    def start_step(self) -> int:
        return self.schedule.start_step

    def tokens_at(self, step: int) -> int:
        """Tokens that update `step` reads."""
        return batch_at(self.loader, step - self.start_step) * self.loader.sequence_tokens

    def tokens_after(self, step: int) -> int:
        """Tokens seen after `step` updates, the parent's included. Positions, padding among them: what the step costs."""
        before = self.origin.tokens if self.origin else 0
        return before + tokens_before(self.loader, step - self.start_step)

    def flops_after(self, step: int) -> float:
        """Training FLOPs spent after `step` updates, the parent's included, by `FLOPS_CONVENTIONS`."""
        before = self.origin.flops if self.origin else 0.0
        own_tokens = tokens_before(self.loader, step - self.start_step)
        return before + own_tokens * train_flops_per_token(self.model, self.loader.sequence_tokens, PUBLISHED)

    @property
    def schedule_share(self) -> float:
        """How far along its schedule the run ends: 1.0 is at the floor. Runs compare at equal shares only."""
        return (self.end_step - self.start_step) / self.schedule.schedule_steps


class RunState(BaseModel):
    """Where a run stood when its checkpoint was taken."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int  # updates made; also the step of the next update, hence the data cursor
    tokens: int
    flops: float
    flops_conventions: dict[str, Any]
    data: Data
    tokenizer: str | None = None  # digest: what the tokens of its data mean; None in runs that did not say


class FinishedRun(BaseModel):
    """What a train or branch artifact says about itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: Run
    state: RunState


def resolve(config: TrainConfig) -> Run:
    """The run that a train config declares."""
    return Run(
        model=config.model,
        optimizer=config.optimizer,
        schedule=config.schedule,
        loader=config.loader,
        held_out=config.held_out,
        seed=config.seed,
        end_step=config.end_step,
        log_every_steps=config.log_every_steps,
        eval_every_steps=config.eval_every_steps,
        keep_steps=config.keep_steps,
    )


def data_of(store: Artifact, mixture: Artifact) -> Data:
    return Data(store=store.digest, mixture=mixture.digest)


def read_run(checkpoint: Artifact, step: int | None = None) -> FinishedRun:
    """Read a train or branch artifact's description.

    Args:
        step: as it stood after so many updates; None: after its last one.

    Raises:
        ValueError: no state of that step was kept.
    """
    run, state = Run.model_validate(checkpoint.read_json(CONFIG)), RunState.model_validate(checkpoint.read_json(STATE))
    if step is None or step == state.step:
        return FinishedRun(run=run, state=state)
    if step not in run.keep_steps:
        kept = ", ".join(map(str, [*run.keep_steps, state.step]))
        raise ValueError(
            f"parent_step = {step}: {checkpoint.url} has its state after {kept} updates alone; choose one, or train with keep_steps"
        )
    return FinishedRun(run=run, state=RunState.model_validate(checkpoint.read_json(f"{kept_folder(step)}/state.json")))


def require_tokenizer(finished: FinishedRun, **named: str) -> None:
    """Refuse what belongs to another tokenizer than the one a run learnt from: equal numbers would be other words.

    Args:
        named: by the input that it is of, the digest of a tokenizer.

    Raises:
        ValueError: names the input. Vocabularies of equal size don't show it, nor would a loss that is merely bad.
    """
    learnt = finished.state.tokenizer
    for name, digest in named.items():
        if learnt not in (None, digest):
            raise ValueError(
                f"{name}: it belongs to tokenizer {digest[:12]}, the checkpoint learnt from {str(learnt)[:12]}, for which the same numbers "
                f"are other words; give the {name} of the checkpoint's own tokenizer"
            )


def kept_folder(step: int) -> str:
    """Where an artifact has the state after `step` updates, if it kept it beside the final one."""
    return f"kept/step-{step:09d}"


def differences(expected: BaseModel, found: BaseModel) -> list[str]:
    """Identity-bearing fields in which two configs differ, as `path: expected -> found`."""
    return field_differences(identity_of(expected), identity_of(found))


def field_differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """The same for plain JSON values."""
    if isinstance(expected, dict) and isinstance(found, dict):
        names = sorted({*expected, *found})
        return [row for name in names for row in field_differences(expected.get(name), found.get(name), f"{path}.{name}" if path else name)]
    return [] if expected == found else [f"{path}: {expected!r} -> {found!r}"]
