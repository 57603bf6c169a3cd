"""Calibration of scores, and how they agree with grades."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.stats import rankdata

from infra.artifacts.program import Stats

USABLE = 3  # the least grade of a document one would train on
MIN_SPREAD = 0.02  # standard deviation of scores: below it a kind is told nothing about its documents

Floats = NDArray[np.float64]


class KindStats(Stats):
    """How scores of one kind of document agree with its grades; on documents that the weights never saw.

    auc: chance that a usable document scores above an unusable one; 0.5 where there is only one sort.
    """

    documents: int
    auc: float
    spearman: float
    mean_absolute_error: float
    mean_score: float
    mean_grade: float  # as a score
    is_informative: bool


def isotonic(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The rising curve nearest to the points: where its corners are, and its values there."""
    order = np.argsort(x, kind="stable")
    at, first = np.unique(x[order], return_index=True)
    weight = np.diff(np.append(first, len(x))).astype(np.float64)
    value = np.add.reduceat(y[order], first) / weight
    return at, np.asarray(isotonic_regression(value, weights=weight).x, np.float64)


def calibrated(raw: Floats, at: Floats, score: Floats) -> Floats:
    """The curve at each raw score: straight between its corners, level beyond them."""
    return np.asarray(np.interp(raw, at, score), np.float64)


def judged(scores: Floats, target: Floats) -> KindStats:
    usable = target >= (USABLE - 1) / 4
    return KindStats(
        documents=len(scores),
        auc=round(_auc(scores, usable), 6),
        spearman=round(_correlation(rankdata(scores), rankdata(target)), 6),
        mean_absolute_error=round(float(np.abs(scores - target).mean()), 6),
        mean_score=round(float(scores.mean()), 6),
        mean_grade=round(float(target.mean()), 6),
        is_informative=bool(scores.std() >= MIN_SPREAD),
    )


def _auc(scores: Floats, positive: NDArray[np.bool_]) -> float:
    """Mann and Whitney's statistic."""
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return 0.5
    return float((rankdata(scores)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def _correlation(a: Floats, b: Floats) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else 0.0
