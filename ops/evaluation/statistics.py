"""Success rates that may be trusted: over the items a run *set out* to grade, with what is missing bounded, not guessed.

The estimand is the success rate over all attempted items. An item without a grade (a time-out, a crash, a cap) could
have been a success or not, and is rarely missing at random - what timed out is more likely hard. So each rate is a
region, [missing all wrong, missing all right], and its confidence interval covers the true rate wherever in the
region it lies: Wilson's score interval at both ends (Wilson 1927), with the critical value of Imbens and Manski (2004),
which falls from two-sided to one-sided as the region grows wider than the sampling error.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

CONFIDENCE = 0.95
MissingPolicy = Literal["require_complete", "bound"]


@dataclass(frozen=True)
class Tally:
    """What came of one evaluation.

    Attributes:
        attempted: items that the run set out to grade; None if nobody wrote it down.
        scored: items with a grade.
        correct: graded items that were right.
    """

    attempted: int | None
    scored: int
    correct: int

    def __post_init__(self) -> None:
        if not 0 <= self.correct <= self.scored or (self.attempted is not None and self.scored > self.attempted):
            raise ValueError(
                f"a tally of {self.correct} correct, {self.scored} scored, {self.attempted} attempted: "
                "0 <= correct <= scored <= attempted must hold; were items graded twice?"
            )

    @property
    def coverage(self) -> float | None:
        """Share of the attempted items that have a grade; None if nobody knows."""
        if self.attempted is None:
            return None
        return self.scored / self.attempted if self.attempted else 0.0


@dataclass(frozen=True)
class Estimate:
    """A success rate as far as it is known.

    Attributes:
        complete_case: correct / scored, for display only: models are never ordered by it. None if nothing was graded.
        least, most: the rate if every missing item is wrong, or right.
        low, high: confidence interval for the rate over the attempted items; at least as wide as [least, most].
        kind: `complete`, `bounded` (items are missing), or `sampling_only` (nobody knows how many were attempted: the
            interval knows nothing of missing ones).
    """

    complete_case: float | None
    least: float
    most: float
    low: float
    high: float
    kind: Literal["complete", "bounded", "sampling_only"]


@dataclass(frozen=True)
class Difference:
    """A's rate less B's. An interval that contains 0 says that the sign is not identified, not that the two are equal."""

    low: float
    high: float

    @property
    def sign(self) -> Literal["higher", "lower"] | None:
        """Whether A is higher or lower than B; None if the data can't tell."""
        return "higher" if self.low > 0 else "lower" if self.high < 0 else None


class UnequalPanelError(ValueError):
    """An aggregate was asked for over items that not every side has."""


def wilson(correct: float, items: int, critical: float) -> tuple[float, float]:
    """Wilson's score interval for `correct` of `items`; all of [0, 1] without items."""
    if items == 0:
        return 0.0, 1.0
    rate, square = correct / items, critical * critical
    centre = (rate + square / (2 * items)) / (1 + square / items)
    half = critical * math.sqrt(rate * (1 - rate) / items + square / (4 * items * items)) / (1 + square / items)
    return max(0.0, min(rate, centre - half)), min(1.0, max(rate, centre + half))  # rounding must not put the rate outside


def imbens_manski_critical(width: float, standard_error: float, confidence: float = CONFIDENCE) -> float:
    """The critical value c with ndtr(c + width / standard_error) - ndtr(-c) = confidence.

    Args:
        width: of the identified region, in units of the rate.
        standard_error: the larger one of the region's two ends.
    """
    two_sided, one_sided = float(ndtri((1 + confidence) / 2)), float(ndtri(confidence))
    if width == 0 or standard_error == 0:
        return two_sided if width == 0 else one_sided
    shift = width / standard_error
    return float(brentq(lambda critical: ndtr(critical + shift) - ndtr(-critical) - confidence, one_sided - 1e-9, two_sided + 1e-9))


def estimate(tally: Tally, confidence: float = CONFIDENCE) -> Estimate:
    """The success rate over the attempted items, with missing ones bounded.

    The standard error that fixes the critical value is that of Wilson's centre, so that 0 of n and n of n keep one.
    """
    items = tally.scored if tally.attempted is None else tally.attempted
    missing = items - tally.scored
    complete_case = tally.correct / tally.scored if tally.scored else None
    if items == 0:
        return Estimate(complete_case, 0.0, 1.0, 0.0, 1.0, "sampling_only" if tally.attempted is None else "bounded")
    least, most = tally.correct / items, (tally.correct + missing) / items
    two_sided = float(ndtri((1 + confidence) / 2))
    error = max(_half_width(tally.correct, items, two_sided), _half_width(tally.correct + missing, items, two_sided)) / two_sided
    critical = imbens_manski_critical(most - least, error, confidence)
    kind: Literal["complete", "bounded", "sampling_only"] = (
        "sampling_only" if tally.attempted is None else "bounded" if missing else "complete"
    )
    return Estimate(
        complete_case,
        least,
        most,
        wilson(tally.correct, items, critical)[0],
        wilson(tally.correct + missing, items, critical)[1],
        kind,
    )


def difference(a: Tally, b: Tally, confidence: float = CONFIDENCE) -> Difference:
    """A's success rate less B's, for two runs of independent items; each side's missing items widen the bound of the other.

    Newcombe's square-and-add of Wilson's intervals (1998) at both ends of the identified region.
    """
    critical = float(ndtri((1 + confidence) / 2))
    low = _newcombe_low(_least(a), _most(b), critical)
    high = -_newcombe_low(_least(b), _most(a), critical)
    return Difference(low, high)


def rank(tallies: Mapping[str, Tally], confidence: float = CONFIDENCE) -> list[tuple[str, Estimate]]:
    """Names with their estimates, best first: ordered by the lower bound, so that what is missing can't lift anybody."""
    estimates = {name: estimate(tally, confidence) for name, tally in tallies.items()}
    return sorted(estimates.items(), key=lambda item: (-item[1].low, -item[1].high, item[0]))


def aggregate(panel: Sequence[str], tallies: Mapping[str, Tally], missing: MissingPolicy, confidence: float = CONFIDENCE) -> Estimate:
    """The unweighted mean of success rates over an explicit panel of evaluations.

    Args:
        panel: every evaluation that counts; a mean over whatever happened to run ranks nothing.
        missing: `require_complete` refuses missing evaluations and items; `bound` gives a missing evaluation [0, 1].

    Raises:
        UnequalPanelError: an evaluation of the panel is missing or incomplete and must not be, or the panel is empty or repeats.
    """
    if not panel or len(set(panel)) != len(panel):
        raise UnequalPanelError(f"a panel names each evaluation once, and at least one; this one is {list(panel)}")
    found = {name: tallies.get(name, Tally(0, 0, 0)) for name in panel}
    if missing == "require_complete" and (incomplete := [name for name, tally in found.items() if not _is_complete(tally)]):
        raise UnequalPanelError(f"{', '.join(incomplete)} missing or incomplete; run them again, or ask for bounds")
    estimates = [estimate(tally, confidence) for tally in found.values()]
    scale = len(estimates)
    least, most = sum(item.least for item in estimates) / scale, sum(item.most for item in estimates) / scale
    below = math.sqrt(sum((item.least - item.low) ** 2 for item in estimates)) / scale
    above = math.sqrt(sum((item.high - item.most) ** 2 for item in estimates)) / scale
    known = [item.complete_case for item in estimates if item.complete_case is not None]
    return Estimate(
        sum(known) / scale if len(known) == scale else None,
        least,
        most,
        max(0.0, least - below),
        min(1.0, most + above),
        "complete" if all(_is_complete(tally) for tally in found.values()) else "bounded",
    )


def _is_complete(tally: Tally) -> bool:
    return tally.attempted is not None and tally.attempted > 0 and tally.scored == tally.attempted


def _half_width(correct: int, items: int, critical: float) -> float:
    low, high = wilson(correct, items, critical)
    return (high - low) / 2


def _least(tally: Tally) -> tuple[int, int]:
    return tally.correct, tally.scored if tally.attempted is None else tally.attempted


def _most(tally: Tally) -> tuple[int, int]:
    items = tally.scored if tally.attempted is None else tally.attempted
    return tally.correct + items - tally.scored, items


def _newcombe_low(one: tuple[int, int], other: tuple[int, int], critical: float) -> float:
    """Lower bound of one's rate less the other's."""
    if one[1] == 0 or other[1] == 0:
        return -1.0
    rate, other_rate = one[0] / one[1], other[0] / other[1]
    below = rate - wilson(*one, critical)[0]
    above = wilson(*other, critical)[1] - other_rate
    return max(-1.0, rate - other_rate - math.hypot(below, above))
