"""`evaluation.json`: what a checkpoint scored, beside baselines and beside what was predicted."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from model.prediction import Score


class ScoredRun(BaseModel):
    """Which checkpoint the numbers are about."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    digest: str
    kind: Literal["train", "branch"]
    step: int
    tokens: int
    flops: float


class SliceResult(BaseModel):
    """Sums and measures of one scorer on one domain. A measure without a denominator is None; so is an unknown interval."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: int
    tokens: int
    bytes: int
    nats: float
    nats_per_token: float | None = None
    bits_per_byte: float | None = None
    nats_per_token_interval: tuple[float, float] | None = None
    bits_per_byte_interval: tuple[float, float] | None = None


class ScorerResult(BaseModel):
    """One scorer - the model, or a baseline - over all held-out domains."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    domains: dict[str, SliceResult]
    averages: dict[str, float]  # micro_ and macro_ measures
    average_intervals: dict[str, tuple[float, float]]


class PredictionResult(BaseModel):
    """The preregistered value beside this checkpoint's, scored or with the reason why not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: str
    predicted: float
    measured: float
    difference: float  # measured minus predicted, whether it is a score or not
    score: Score | None
    reason_not_scored: str | None


class Evaluation(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: ScoredRun
    held_out: dict[str, Any]
    drop_mode: Literal["dropless"]
    interval_level: float
    model: ScorerResult
    baselines: dict[str, ScorerResult]
    prediction: PredictionResult
