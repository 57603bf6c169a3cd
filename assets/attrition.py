"""attrition: what became of the documents, for people to read. Nothing waits for it."""

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

from assets.lineage import each, same
from assets.partitions import PROFILE
from assets.report import bars, numbers, table
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact

SIDE_CHARACTERS = 200


@stage(
    program="ops.report.attrition:report_attrition",
    inputs={
        **{name: each(name) for name in ("raw", "extracted", "normalized", "language", "contamination", "tokens")},
        "quality": each(PROFILE.quality_scores),
        **{name: same(name) for name in ("exact_duplicates", "fuzzy_duplicates", "store")},
    },
    group="store",
    kinds={"html"},
    checks={"balances": "Of every source: records = rejects + blank + copies + every outcome in the store."},
)
def attrition(artifact: Artifact) -> Report:
    """What became of every source's records, stage by stage, with samples of what was kept and of what was removed and why.

    Open `report.html`: one file, which loads nothing. The removed and the kept stand side by side, with the reason marked.
    """
    funnels = artifact.read_json("funnel.json")
    return Report(
        metadata={
            **numbers(artifact.stats),
            "report": dg.MetadataValue.path(artifact.url_of("report.html")),
            "funnel": table(_row(funnel) for funnel in funnels),
            "kept_share": bars({row["source"]: _share(row) for row in funnels}, "Records that are trained on", "share of all records"),
            "side_by_side": table(_sides(artifact.read_json("samples.json"))),
        },
        checks={"balances": all(funnel["records"] == _accounted(funnel) for funnel in funnels)},
    )


def _row(funnel: Mapping[str, Any]) -> dict[str, Any]:
    counts = {name: funnel[name] for name in ("source", "records", "blank", "copies")}
    outcomes = {name: count for name, count in funnel["documents"].items() if name != "read"}
    return {**counts, "rejected": sum(funnel["rejected"].values()), **outcomes, "tokens_out": funnel["tokens"]["out"]}


def _share(funnel: Mapping[str, Any]) -> float:
    return float(funnel["documents"]["out"] / max(funnel["records"], 1))


def _accounted(funnel: Mapping[str, Any]) -> int:
    outcomes = sum(count for name, count in funnel["documents"].items() if name != "read")
    return int(sum(funnel["rejected"].values()) + funnel["blank"] + funnel["copies"] + outcomes)


def _sides(samples: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """One removed document of each source and outcome beside what it lost to, the reason between them."""
    seen: set[tuple[str, str]] = set()
    for sample in samples:
        if sample["beside"] is None or (sample["source"], sample["outcome"]) in seen:
            continue
        seen.add((sample["source"], sample["outcome"]))
        yield {
            "source": sample["source"],
            "outcome": sample["outcome"],
            "removed": sample["passage"]["text"][:SIDE_CHARACTERS],
            "reason": sample["reason"],
            "kept": sample["beside"]["passage"]["text"][:SIDE_CHARACTERS],
        }
