"""Calibration of scores, and how they agree with grades."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.stats import rankdata

from infra.artifacts.program import Stats

USABLE = 3  # the least grade of a document one would train on
MIN_SPREAD = 0.02  # standard deviation of scores: below it a kind is told nothing about its documents
BINS = 10  # of equal width, that scores and grades are compared in

Floats = NDArray[np.float64]


class ScoreBin(Stats):
    """Documents whose scores are near each other, and what they were graded: equal means are calibration."""

    documents: int
    mean_score: float
    mean_grade: float


class KindStats(Stats):
    """How scores of one kind of document agree with its grades; on documents that neither weights nor calibration saw.

    auc: chance that a usable document scores above an unusable one; 0.5 where there is only one sort.
    mean_squared_error: what the calibration makes small; of the mean grade as everybody's score it is `grade_variance`.
    calibration_error: what mean score and mean grade differ by in a bin, on the average of all documents.
    """

    documents: int
    auc: float
    spearman: float
    mean_absolute_error: float
    mean_squared_error: float
    grade_variance: float
    mean_score: float
    mean_grade: float  # as a score
    calibration_error: float
    is_informative: bool
    bins: tuple[ScoreBin, ...]  # those with documents, by rising score


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
    """The report of documents by their scores and what they were graded, both in [0, 1]; there must be one at least."""
    usable = target >= (USABLE - 1) / 4
    bins = _bins(scores, target)
    return KindStats(
        documents=len(scores),
        auc=round(_auc(scores, usable), 6),
        spearman=round(_correlation(rankdata(scores), rankdata(target)), 6),
        mean_absolute_error=round(float(np.abs(scores - target).mean()), 6),
        mean_squared_error=round(float(((scores - target) ** 2).mean()), 6),
        grade_variance=round(float(target.var()), 6),
        mean_score=round(float(scores.mean()), 6),
        mean_grade=round(float(target.mean()), 6),
        calibration_error=round(sum(one.documents * abs(one.mean_score - one.mean_grade) for one in bins) / len(scores), 6),
        is_informative=bool(scores.std() >= MIN_SPREAD),
        bins=bins,
    )


def _bins(scores: Floats, target: Floats) -> tuple[ScoreBin, ...]:
    of = np.minimum((scores * BINS).astype(np.int64), BINS - 1)
    return tuple(
        ScoreBin(
            documents=int((of == one).sum()),
            mean_score=round(float(scores[of == one].mean()), 6),
            mean_grade=round(float(target[of == one].mean()), 6),
        )
        for one in np.unique(of)
    )


def _auc(scores: Floats, positive: NDArray[np.bool_]) -> float:
    """Mann and Whitney's statistic."""
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return 0.5
    return float((rankdata(scores)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def _correlation(a: Floats, b: Floats) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else 0.0
