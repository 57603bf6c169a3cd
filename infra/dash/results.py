"""What the board shows, and where it gets it: values without behaviour, made by whoever knows the records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

Status = Literal["succeeded", "failed", "artifact_failed", "infra_failed"]
Verdict = Literal["passed", "failed", "ungraded"]
Key = tuple[str | int, ...]


@dataclass(frozen=True)
class Estimate:
    """A success rate over the items that a run set out to grade, as far as it is known.

    Attributes:
        low, high: its confidence interval, missing items bounded.
        least, most: the rate if every missing item is wrong, or right.
        complete_case: among graded items; for display, nothing is ordered by it.
        kind: `sampling_only` where nobody knows how many items were attempted.
    """

    low: float
    high: float
    least: float
    most: float
    complete_case: float | None
    kind: Literal["complete", "bounded", "sampling_only"]


@dataclass(frozen=True)
class Result:
    """One evaluation that ended.

    Attributes:
        run: its id, unique.
        cohort: the launch it belongs to: what ran together under one version of everything.
        version: of the evaluation's definition, for people.
        attempted: items that it set out to grade; None if nobody wrote it down.
        estimate: None where nothing can be said, as of a run that failed.
        measure: the number of a benchmark that is no rate, such as bits per byte; nothing is ordered by it.
        suspicions: sentences why the number can't be trusted although the run succeeded.
        errors: items without a grade, by reason.
        detail: why it failed, for people.
        has_samples: whether `Source.page` has something of it.
    """

    run: str
    model: str
    benchmark: str
    metric: str
    cohort: str
    version: str
    at: datetime
    status: Status
    attempted: int | None
    scored: int
    correct: int
    estimate: Estimate | None
    measure: float | None = None
    suspicions: tuple[str, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)
    detail: str | None = None
    has_samples: bool = False

    @property
    def is_valid(self) -> bool:
        """Whether its number may stand on the board."""
        return self.status == "succeeded" and not self.suspicions and (self.estimate is not None or self.measure is not None)

    @property
    def coverage(self) -> float | None:
        """Share of the attempted items that have a grade; None if nobody knows."""
        if self.attempted is None:
            return None
        return self.scored / self.attempted if self.attempted else 0.0


@dataclass(frozen=True)
class Choice:
    """One answer of a multiple-choice item."""

    text: str
    loglik: float
    is_chosen: bool
    is_gold: bool


@dataclass(frozen=True)
class Sample:
    """One item, with everything a person needs to see why it counts as it does. Texts come from strangers.

    Attributes:
        key: identifies it in its run; pages are ordered by it.
        reason: what the grader said.
        document: the item as it was read.
        trajectory: URI of what was too large for the item's row (`Source.trajectory` reads it).
    """

    key: Key
    verdict: Verdict
    kind: str
    method: str | None = None
    metric: str | None = None
    score: float | None = None
    reason: str | None = None
    prompt: str | None = None
    messages: Sequence[tuple[str, str]] = ()
    choices: Sequence[Choice] = ()
    output: str | None = None
    extracted: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    document: str | None = None
    trajectory: str | None = None

    @property
    def name(self) -> str:
        """Its key, for people."""
        return " / ".join(map(str, self.key))

    @property
    def answer(self) -> str | None:
        """What was graded: the choice that the model made, or what was taken from its output."""
        return next((choice.text for choice in self.choices if choice.is_chosen), self.extracted)

    @property
    def right_choice(self) -> str | None:
        """The choice that would have been right, where there are choices."""
        return next((choice.text for choice in self.choices if choice.is_gold), None)


@dataclass(frozen=True)
class Page:
    """Some samples of a run, ordered by key. `has_more` says whether others follow."""

    samples: Sequence[Sample]
    has_more: bool


@dataclass(frozen=True)
class Prediction:
    """A value that was written down before its run began, beside what came.

    Attributes:
        subject: what was measured, such as a checkpoint.
        measured: None while there is no result.
        unscored: why the result is not the one that was predicted; None if it is.
    """

    subject: str
    metric: str
    predicted: float
    tolerance: float
    measured: float | None
    unscored: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_within(self) -> bool | None:
        """Whether the result came within the tolerance; None if that can't be said."""
        if self.measured is None or self.unscored is not None:
            return None
        return abs(self.measured - self.predicted) <= self.tolerance


class Unavailable(RuntimeError):  # noqa: N818 - a state of the world, shown as one
    """What a page needs can't be read now; the message says what and why."""


class Source(Protocol):
    """Where results come from. Every method may raise `Unavailable`."""

    def results(self) -> Sequence[Result]:
        """Every result, in any order."""

    def predictions(self) -> Sequence[Prediction]:
        """Every prediction, in the order in which to show them."""

    def page(self, result: Result, *, after: Key | None, limit: int, verdict: Verdict | None) -> Page:
        """Samples of a result, the first ones after a key."""

    def sample(self, result: Result, key: Key) -> Sample | None:
        """One sample, all of it."""

    def trajectory(self, result: Result, uri: str, limit: int) -> str:
        """The first `limit` bytes of what a sample's URI names, as text; nothing outside the result's own archive."""

    def mean(self, results: Sequence[Result | None]) -> Estimate:
        """The mean success rate of one model over a panel of benchmarks, missing ones bounded."""
