"""From records and rows of `ops/evaluation` to what the board shows."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from infra.dash.results import Choice, Estimate, Result, Sample
from ops.evaluation import statistics
from ops.evaluation.records import EvaluationRecord
from ops.evaluation.samples import SAMPLES


def result_of(record: EvaluationRecord, blank: bool, *, several: bool) -> Result:
    """A record on the board.

    Args:
        blank: no sample of it has an answer.
        several: other models have the same name, so the digest is part of it.
    """
    name, limit = record.model["name"], record.evaluation.get("limit")
    coverage = record.coverage
    succeeded = record.status == "succeeded"
    is_rate = coverage is not None and (coverage.scored > 0 or not record.metrics)
    tally = coverage.tally if succeeded and coverage is not None and is_rate else None
    return Result(
        run=f"{record.run_id}.{record.launch}",
        model=f"{name} · {record.model['digest'][:8]}" if several else name,
        benchmark=f"{record.name}, first {limit:,}" if limit else record.name,
        metric=" · ".join(part for part in reversed(record.headline or ()) if part != "none") or "none",
        cohort=record.launch,
        version=record.version or "none given",
        at=datetime.fromisoformat(record.at).astimezone(UTC),
        status=record.status,
        attempted=coverage.attempted if coverage else None,
        scored=coverage.scored if coverage else 0,
        correct=coverage.correct if coverage else 0,
        estimate=shown_estimate(statistics.estimate(tally)) if tally else None,
        measure=_headline_number(record) if succeeded and not is_rate else None,
        suspicions=tuple(_suspicions(record, blank)) if succeeded else (),
        errors={"without a grade": missing} if coverage and is_rate and (missing := coverage.attempted - coverage.scored) else {},
        detail="\n".join([record.reason or "", *record.log_tail]).strip() or None,
        has_samples=succeeded,
    )


def _suspicions(record: EvaluationRecord, blank: bool) -> list[str]:
    coverage = record.coverage
    found = []
    if coverage is not None and not coverage.attempted:
        found.append("It set out to grade no item.")
    if blank:
        found.append("No answer could be taken from any output: a broken filter looks the same as a model that knows nothing.")
    return found


def _headline_number(record: EvaluationRecord) -> float | None:
    filter_, metric = record.headline or ("", "")
    return record.metrics.get(filter_, {}).get(metric)


def sample_of(row: Mapping[str, Any]) -> Sample:
    """A row of the samples' table; columns that were not read are missing in it."""
    grading = row.get("grading")
    return Sample(
        key=tuple(row[name] for name in SAMPLES.key),
        verdict="ungraded" if grading is None else "passed" if grading["passed"] else "failed",
        kind=row["kind"],
        method=grading and grading["method"],
        metric=grading and grading["metric"],
        score=grading and grading["score"],
        reason=(grading and grading["detail"]) or None,
        prompt=row.get("prompt"),
        messages=[(one["role"], one["content"]) for one in row.get("messages") or ()],
        choices=[
            Choice(one["text"], one["loglik"], number == row.get("model_choice"), number == row.get("gold_choice"))
            for number, one in enumerate(row.get("choices") or ())
        ],
        output=row.get("output"),
        extracted=row.get("extracted"),
        metrics=dict(row.get("metrics") or {}),
        document=row.get("doc"),
        trajectory=row.get("trajectory"),
    )


def shown_estimate(found: statistics.Estimate) -> Estimate:
    """The same numbers, in the board's own type."""
    return Estimate(found.low, found.high, found.least, found.most, found.complete_case, found.kind)
