"""Preregistration: what a run will measure, written down before it starts, and the scoring of what it measured.

A prediction names everything that makes a number comparable: metric with its drop mode, data, token mark, place on the
learning-rate schedule, tolerance. A result that differs in one of them is not scored, however close it looks.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import identity_of
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from model.config import PredictionConfig
from model.law import PowerLaw, standard_error
from model.run import FLOPS_CONVENTIONS, FinishedRun, Run, differences, resolve
from model.scaling import MetricIdentity, ScalingLaw


class PredictionError(ValueError):
    """A run that the law says nothing about."""


class UnscoredError(ValueError):
    """A result that is not the one that was predicted."""


class Prediction(BaseModel):
    """`prediction.json`: an entry in the register."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    identity: MetricIdentity
    token_mark: int
    flops: float
    predicted: float
    tolerance: float
    standard_error: float | None
    extrapolation: float  # FLOPs of the run over those of the largest cell
    law: PowerLaw
    run: Run


class Score(BaseModel):
    """A measured value beside its prediction, in the metric's unit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: str
    token_mark: int
    predicted: float
    tolerance: float
    measured: float
    signed_error: float  # measured minus predicted: positive is worse than predicted
    is_within_tolerance: bool


class Measured(BaseModel):
    """A result offered for scoring."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    identity: MetricIdentity
    tokens: int
    value: float
    run: Run


class PredictionStats(Stats):
    """The entry in numbers."""

    token_mark: int
    flops: float
    predicted: float
    tolerance: float
    extrapolation: float


@program(version="4")
def predict(config: PredictionConfig, scaling_law: Artifact, out: Writer) -> PredictionStats:
    """Predict the run that `config.run` declares, from a ladder's law.

    Raises:
        PredictionError: the run measures something else than the ladder did.
    """
    fitted = ScalingLaw.model_validate(scaling_law.read_json("scaling_law.json"))
    run = resolve(config.run)
    _check_comparable(run, fitted.identity)
    flops = run.flops_after(run.end_step)
    error = standard_error(fitted.law, fitted.leave_one_out, flops)
    prediction = Prediction(
        identity=fitted.identity,
        token_mark=run.tokens_after(run.end_step),
        flops=flops,
        predicted=fitted.law.loss_at(flops),
        tolerance=max(config.min_tolerance, config.standard_errors * (error or 0.0)),
        standard_error=error,
        extrapolation=flops / max(cell.flops for cell in fitted.cells),
        law=fitted.law,
        run=run,
    )
    out.write_json("prediction.json", prediction.model_dump(mode="json") | {"run": identity_of(run)})
    out.progress(1, 1, "predictions")
    return PredictionStats(
        token_mark=prediction.token_mark,
        flops=flops,
        predicted=prediction.predicted,
        tolerance=prediction.tolerance,
        extrapolation=prediction.extrapolation,
    )


def read_prediction(artifact: Artifact) -> Prediction:
    return Prediction.model_validate(artifact.read_json("prediction.json"))


def measured_of(finished: FinishedRun, identity: MetricIdentity, value: float) -> Measured:
    return Measured(identity=identity, tokens=finished.state.tokens, value=value, run=finished.run)


def score(prediction: Prediction, measured: Measured) -> Score:
    """Score a result against its earlier prediction.

    Raises:
        UnscoredError: the result is a branch's, is of another run, or differs in metric, data or token mark.
    """
    if reasons := _reasons_not_to_score(prediction, measured):
        raise UnscoredError(f"not the preregistered result: {'; '.join(reasons)}")
    error = measured.value - prediction.predicted
    return Score(
        metric=prediction.identity.metric,
        token_mark=prediction.token_mark,
        predicted=prediction.predicted,
        tolerance=prediction.tolerance,
        measured=measured.value,
        signed_error=error,
        is_within_tolerance=abs(error) <= prediction.tolerance,
    )


def _reasons_not_to_score(prediction: Prediction, measured: Measured) -> list[str]:
    if measured.run.origin is not None:
        return [f"this is a branch that left its parent at step {measured.run.origin.step}; the prediction is about a run from scratch"]
    reasons = [
        f"{field} is {_short(getattr(measured.identity, field))}, predicted was {_short(getattr(prediction.identity, field))}"
        for field in MetricIdentity.model_fields
        if getattr(measured.identity, field) != getattr(prediction.identity, field)
    ]
    if measured.tokens != prediction.token_mark:
        reasons.append(f"token mark is {measured.tokens}, predicted was {prediction.token_mark}")
    return reasons + [f"run differs in {row}" for row in differences(prediction.run, measured.run)[:4]]


def _check_comparable(run: Run, identity: MetricIdentity) -> None:
    if identity.flops_conventions != FLOPS_CONVENTIONS:
        raise PredictionError(f"the law counts FLOPs by {identity.flops_conventions}, this run by {FLOPS_CONVENTIONS}; fit the law again")
    if run.held_out.metric_identity != identity.held_out:
        raise PredictionError(f"the run scores held-out text by {run.held_out.metric_identity}, the ladder by {identity.held_out}; use one")
    if abs(run.schedule_share - identity.schedule_share) > 0.011:
        raise PredictionError(
            f"the run ends at {run.schedule_share:.2f} of its schedule, the ladder's cells at {identity.schedule_share:.2f}, so their "
            "learning rates don't compare; choose stop_after_steps so that the shares agree"
        )


def _short(value: Any) -> str:
    return str(value.model_dump() if isinstance(value, BaseModel) else value)
