"""Results to lay out, and a source of them in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.dash.results import Estimate, Key, Page, Prediction, Result, Sample, Unavailable, Verdict

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def estimate(low: float, high: float, missing: float = 0.0) -> Estimate:
    middle = (low + high) / 2
    least, most = middle - missing / 2, middle + missing / 2
    return Estimate(low, high, least, most, middle, "bounded" if missing else "complete")


def result(model: str, benchmark: str, low: float, high: float, *, hours: float = 0, **fields: Any) -> Result:
    """A valid result unless fields say otherwise."""
    usual: dict[str, Any] = {
        "run": f"{model}.{benchmark}.{hours:g}",
        "metric": "acc",
        "cohort": "autumn",
        "version": "1",
        "at": NOON + timedelta(hours=hours),
        "status": "succeeded",
        "attempted": 100,
        "scored": 100,
        "correct": round(50 * (low + high)),
        "estimate": estimate(low, high),
    }
    return Result(model=model, benchmark=benchmark, **{**usual, **fields})


def failed(model: str, benchmark: str, **fields: Any) -> Result:
    return result(model, benchmark, 0, 0, **{"status": "infra_failed", "estimate": None, "scored": 0, "correct": 0, **fields})


@dataclass
class InMemory:
    """A source that knows everything already."""

    found: list[Result] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    predicted: list[Prediction] = field(default_factory=list)
    is_away: bool = False
    blobs: dict[str, str] = field(default_factory=dict)

    def results(self) -> Sequence[Result]:
        if self.is_away:
            raise Unavailable("s3://lab/root can't be listed: the network is away; try again")
        return self.found

    def predictions(self) -> Sequence[Prediction]:
        return self.predicted

    def page(self, result: Result, *, after: Key | None, limit: int, verdict: Verdict | None) -> Page:
        if after is not None and len(after) != 2:
            raise ValueError(f"{list(after)!r} is no key of table 'samples'; its columns are task, doc")
        chosen = [one for one in self.samples if (after is None or one.key > after) and verdict in (None, one.verdict)]
        return Page(chosen[:limit], len(chosen) > limit)

    def sample(self, result: Result, key: Key) -> Sample | None:
        return next((one for one in self.samples if one.key == key), None)

    def trajectory(self, result: Result, uri: str, limit: int) -> str:
        if uri not in self.blobs:
            raise Unavailable(f"{uri} can't be read: it is not in this archive")
        return self.blobs[uri][:limit]

    def mean(self, results: Sequence[Result | None]) -> Estimate:
        known = [one.estimate if one and one.estimate else Estimate(0, 1, 0, 1, None, "bounded") for one in results]
        low, high, least, most = (sum(getattr(one, name) for one in known) / len(known) for name in ("low", "high", "least", "most"))
        whole = all(one.kind == "complete" for one in known)
        return Estimate(low, high, least, most, (low + high) / 2 if whole else None, "complete" if whole else "bounded")
