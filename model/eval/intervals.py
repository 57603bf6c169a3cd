"""Confidence intervals over documents. Tokens of one document are not independent, so documents are what is resampled."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from model.eval.scores import DocumentScores, Scores, averages, measures_of

Interval = tuple[float, float]
"""Lower and upper end."""


def bootstrap(scores: Scores, *, resamples: int, level: float, seed: int) -> dict[str, dict[str, Interval]]:
    """Percentile intervals of every measure, from resampling whole documents within each domain.

    Args:
        resamples: bootstrap repetitions; 1,000 settle a 95% interval's ends to about 3% of its width.
        level: share of repetitions inside, e.g. 0.95.
        seed: equal scores and seed give equal intervals.

    Returns:
        For each domain, and under `overall` for micro and macro averages: measure -> (lower, upper). A domain of fewer
        than two documents has no interval.
    """
    rng = np.random.default_rng(seed)
    sums = {domain: _resampled_sums(found, resamples, rng) for domain, found in sorted(scores.items())}
    rows = [{domain: _row(*drawn[repetition]) for domain, drawn in sums.items()} for repetition in range(resamples)]
    intervals = {domain: _percentiles([row[domain] for row in rows], level) if len(scores[domain].nats) > 1 else {} for domain in sums}
    overall = _percentiles([averages(row) for row in rows], level) if any(intervals.values()) else {}
    return {**intervals, "overall": overall}


def _resampled_sums(found: DocumentScores, resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """[resamples, 3]: nats, tokens and bytes of as many documents, drawn with replacement."""
    table = np.stack([found.nats, found.tokens, found.bytes], axis=1).astype(np.float64)
    count = len(table)
    if not count:
        return np.zeros((resamples, 3))
    return np.stack([table[rng.integers(0, count, count)].sum(axis=0) for _ in range(resamples)])


def _row(nats: float, tokens: float, size_bytes: float) -> dict[str, float]:
    return {"nats": nats, "tokens": tokens, "bytes": size_bytes, **measures_of(nats, int(tokens), int(size_bytes))}


def _percentiles(rows: list[dict[str, float]], level: float) -> dict[str, Interval]:
    tail = (1 - level) / 2
    names = [name for name in rows[0] if name.endswith(("nats_per_token", "bits_per_byte"))]
    ends: Mapping[str, NDArray[np.float64]] = {
        name: np.quantile([row[name] for row in rows if name in row], [tail, 1 - tail]) for name in names
    }
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}
