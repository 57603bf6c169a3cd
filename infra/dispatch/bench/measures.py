"""A row of a benchmark: many measurements of one thing, their median, and how that compares."""

import statistics
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Measure:
    """One thing, measured several times.

    Attributes:
        unit: `s` (less is better) or `/s` (more is better).
        target: at most (or, of a rate, at least) this much; None if there is none.
        against: the name of the measure that the ratio compares with.
    """

    name: str
    unit: str = "s"
    target: float | None = None
    against: str | None = None
    values: list[float] = field(default_factory=list)
    skipped: str | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def as_json(self, others: dict[str, "Measure"]) -> dict[str, Any]:
        """Name, median, extremes, count, and the ratio to what it compares with."""
        if self.skipped or not self.values:
            return {"name": self.name, "skipped": self.skipped or "not measured"}
        told = {"name": self.name, "unit": self.unit, "median": self.median, "min": min(self.values), "max": max(self.values)}
        told |= {"count": len(self.values), "target": self.target}
        peer = others.get(self.against or "")
        if peer is not None and peer.values:
            told |= {"against": peer.name, "ratio": self.median / peer.median}
        return told


def table(measures: list[Measure]) -> str:
    """The measures as lines of text."""
    others = {measure.name: measure for measure in measures}
    return "\n".join(_line(measure.as_json(others)) for measure in measures)


def _line(told: dict[str, Any]) -> str:
    if "skipped" in told:
        return f"{told['name']:<58} skipped: {told['skipped']}"
    line = f"{told['name']:<58} {told['median']:10.4g} {told['unit']:<3} ({told['min']:.4g} to {told['max']:.4g}, {told['count']} times)"
    if told["target"] is not None:
        line += f", target {told['target']:g}"
    return line + (f", {told['ratio']:.2f} x {told['against']}" if "ratio" in told else "")
