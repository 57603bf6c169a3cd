"""The scaling law of a ladder: held-out loss against training FLOPs, one cell a run of the same recipe."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from model.config import Metric, ScalingConfig
from model.law import PowerLaw, ScalingError, fit, leave_one_out
from model.parameters import count
from model.run import Data, DropMode, FinishedRun, read_run
from model.tracker import read_rows


class MetricIdentity(BaseModel):
    """All that must be equal before two losses may be compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: Metric
    drop_mode: DropMode
    data: Data
    held_out: dict[str, Any]  # identity of the HeldOutConfig
    flops_conventions: dict[str, Any]
    schedule_share: float


class Cell(BaseModel):
    """One run of the ladder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    total_parameters: int
    active_parameters: int
    tokens: int
    flops: float
    loss: float
    residual: float = 0.0  # loss minus the law's, in the loss's unit


class ScalingLaw(BaseModel):
    """`scaling_law.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    identity: MetricIdentity
    law: PowerLaw
    floor_is_pinned: bool
    cells: tuple[Cell, ...]
    leave_one_out: tuple[PowerLaw, ...]  # in the order of `cells`; empty under three budgets


class ScalingStats(Stats):
    """The law in three numbers, and how well it describes its own cells."""

    cells: int
    floor: float
    log_scale: float
    exponent: float
    largest_residual: float


@program(version="2")
def fit_scaling_law(config: ScalingConfig, ladder: Artifacts, out: Writer) -> ScalingStats:
    """Fit loss = E + A * FLOPs^-a over the cells of a ladder.

    Args:
        ladder: train artifacts by cell; the last row of `evals.jsonl` is a cell's loss.

    Raises:
        ScalingError: cells that measure different things (metric settings, data, FLOP conventions, place on the schedule),
            or that can't carry the law (see `model.law.fit`).
    """
    identities = {name: metric_identity(read_run(artifact), config.metric) for name, artifact in ladder.items()}
    identity = _only(identities)
    cells = [_cell(name, artifact, config.metric) for name, artifact in ladder.items()]
    flops, losses = [cell.flops for cell in cells], [cell.loss for cell in cells]
    law = fit(flops, losses, floor=config.pinned_floor)
    described = tuple(cell.model_copy(update={"residual": cell.loss - law.loss_at(cell.flops)}) for cell in cells)
    fitted = ScalingLaw(
        identity=identity,
        law=law,
        floor_is_pinned=config.pinned_floor is not None,
        cells=described,
        leave_one_out=tuple(leave_one_out(flops, losses, floor=config.pinned_floor)),
    )
    out.write_json("scaling_law.json", fitted.model_dump(mode="json"))
    out.progress(len(cells), len(cells), "cells")
    return ScalingStats(
        cells=len(cells),
        floor=law.floor,
        log_scale=law.log_scale,
        exponent=law.exponent,
        largest_residual=max(abs(cell.residual) for cell in described),
    )


def metric_identity(finished: FinishedRun, metric: Metric) -> MetricIdentity:
    """What a finished run's own held-out rows measured."""
    return MetricIdentity(
        metric=metric,
        drop_mode="dropless",
        data=finished.state.data,
        held_out=finished.run.held_out.metric_identity,
        flops_conventions=finished.state.flops_conventions,
        schedule_share=round(finished.run.schedule_share, 2),  # cells of few steps can't hit a share exactly
    )


def final_loss(artifact: Artifact, metric: Metric) -> float:
    """A run's held-out loss after its last update.

    Raises:
        ScalingError: the run has no held-out row at its last step, or not this metric.
    """
    with artifact.open("evals.jsonl") as stream:
        rows = read_rows(stream)
    step = read_run(artifact).state.step
    if not rows or rows[-1]["step"] != step:
        raise ScalingError(
            f"{artifact.url}: no held-out row at its last step {step} in evals.jsonl; train it with held-out text in the store"
        )
    if metric not in rows[-1]:
        raise ScalingError(f"{artifact.url}: evals.jsonl has no {metric}; it has {', '.join(sorted(rows[-1]))}")
    return float(rows[-1][metric])


def _cell(name: str, artifact: Artifact, metric: Metric) -> Cell:
    finished = read_run(artifact)
    parameters = count(finished.run.model)
    return Cell(
        name=name,
        total_parameters=parameters.total,
        active_parameters=parameters.active,
        tokens=finished.state.tokens,
        flops=finished.state.flops,
        loss=final_loss(artifact, metric),
    )


def _only(identities: dict[str, MetricIdentity]) -> MetricIdentity:
    if not identities:
        raise ScalingError("the ladder has no cells; train at least two")
    first_name, first = next(iter(identities.items()))
    for name, other in identities.items():
        if other != first:
            fields = [field for field in MetricIdentity.model_fields if getattr(other, field) != getattr(first, field)]
            details = "; ".join(f"{field}: {getattr(first, field)} and {getattr(other, field)}" for field in fields)
            raise ScalingError(f"ladder cells {first_name!r} and {name!r} don't measure the same thing ({details}); give them one recipe")
    return first
