"""What became of each source's records and documents, stage by stage, from the stages' own counters."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from infra.artifacts.artifact import Artifact
from ops.attrition import Attrition, Outcome
from ops.cache import Ledger

STEPS = {
    Outcome.CONTAMINATED: "not contaminated",
    Outcome.FUZZY: "no fuzzy duplicate",
    Outcome.EXACT: "no exact duplicate",
    Outcome.EMPTIED: "with paragraphs of its own",
    Outcome.LANGUAGE: "of a wanted language",
    Outcome.QUALITY: "of enough quality",
    Outcome.HELD_OUT_DUPLICATE: "no held-out duplicate",
}
"""What is left after each outcome was taken away; what is not held out then is to train on."""


class SourceFunnel(BaseModel):
    """One source. `records` = `rejected` + `extracted`; `extracted` = `blank` + `copies` + `distinct`; the outcomes sum to `distinct`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    domain: str
    index_rows: int = 0  # of a crawl's URL index; `wanted` of them, the rest was left out or stood there twice
    wanted: int = 0
    fetch_errors: dict[str, int] = Field(default_factory=dict)  # by reason, of what was wanted
    fetched: int  # what `raw` counts: pages, files or rows; of WARC files, the files
    records: int
    rejected: dict[str, int]
    extracted: int
    blank: int
    copies: int
    distinct: int
    documents: Attrition
    tokens: Attrition

    @property
    def steps(self) -> list[tuple[str, int]]:
        """How many are left after each step, from the index's rows or the records on."""
        left = self.documents.read
        steps = [("index rows", self.index_rows), ("wanted", self.wanted)] if self.index_rows else []
        steps += [("records", self.records), ("extracted", self.extracted), ("distinct", left)]
        for outcome, title in STEPS.items():
            if lost := getattr(self.documents, outcome.name.lower()):
                left -= lost
                steps.append((title, left))
        return [*steps, (spoken(Outcome.OUT), self.documents.out)]


class UnbalancedFunnelError(ValueError):
    """The stages' counters contradict each other: some were built from other documents."""


SPOKEN = {
    Outcome.FUZZY: "fuzzy duplicate",
    Outcome.EXACT: "exact duplicate",
    Outcome.LANGUAGE: "other language",
    Outcome.QUALITY: "low quality",
    Outcome.HELD_OUT_DUPLICATE: "held-out duplicate",
    Outcome.HELD_OUT: "held out",
    Outcome.OUT: "to train on",
}


def spoken(outcome: Outcome) -> str:
    """An outcome in words."""
    return SPOKEN.get(outcome, outcome.name.lower())


def funnel_of(
    source: str, raw: Artifact, extracted: Artifact, normalized: Artifact, ledger: Ledger, fetch_errors: Mapping[str, int]
) -> SourceFunnel:
    """The funnel of one source.

    Args:
        fetch_errors: by reason, as `raw` lists them.

    Raises:
        UnbalancedFunnelError: what one stage gave is not what the next one took.
    """
    counters, texts, rows = ledger.counters[source], normalized.stats, raw.stats.get("index_rows", 0)
    left_out = raw.stats.get("index_repeated", 0) + sum(raw.stats.get("index_left_out", {}).values())
    funnel = SourceFunnel(
        source=source,
        domain=ledger.sources[source],
        index_rows=rows,
        wanted=rows - left_out,
        fetch_errors=_largest_first(fetch_errors),
        fetched=raw.stats["records"],
        records=extracted.stats["records"],
        rejected=_largest_first(extracted.stats["rejects"]),
        extracted=extracted.stats["documents"],
        blank=texts["blank"],
        copies=texts["duplicates"],
        distinct=texts["documents"],
        documents=counters.documents,
        tokens=counters.tokens,
    )
    _require(source, "extracted", funnel.records, funnel.extracted + sum(funnel.rejected.values()))
    _require(source, "normalized", funnel.extracted, funnel.distinct + funnel.copies + funnel.blank)
    _require(source, "store", funnel.distinct, funnel.documents.read)
    return funnel


def _largest_first(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _require(source: str, stage: str, taken: int, accounted: int) -> None:
    if taken != accounted:
        raise UnbalancedFunnelError(f"{source}: {stage} took {taken} and accounts for {accounted}; build it again from the same documents")


def totals(funnels: list[SourceFunnel]) -> dict[str, Any]:
    """Sums over sources of what every source counts alike."""
    return {
        "records": sum(funnel.records for funnel in funnels),
        "extracted": sum(funnel.extracted for funnel in funnels),
        "distinct": sum(funnel.distinct for funnel in funnels),
        "documents_out": sum(funnel.documents.out for funnel in funnels),
        "tokens_read": sum(funnel.tokens.read for funnel in funnels),
        "tokens_out": sum(funnel.tokens.out for funnel in funnels),
    }
