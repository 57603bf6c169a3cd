"""Duplicates across all sources: exact by identity, fuzzy by MinHash proposals that a text comparison decides, paragraphs by
their text."""

from assets.lineage import each, same
from assets.partitions import PROFILE, SOURCES
from assets.report import bars, numbers, table
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact


@stage(
    program="ops.dedup.minhash:minhash",
    inputs={"normalized": same("normalized")},
    partitions=SOURCES,
    group="deduplication",
    kinds={"arrow"},
)
def minhash(artifact: Artifact) -> Report:
    """LSH buckets of every document. Documents that share one are proposed as duplicates, no more than that."""
    return Report(metadata=numbers(artifact.stats))


@stage(
    program="ops.dedup.exact:exact_duplicates",
    inputs={"normalized": each("normalized")},
    group="deduplication",
    kinds={"duckdb"},
    checks={"balances": "The sources' duplicates add up to the total."},
)
def exact_duplicates(artifact: Artifact) -> Report:
    """Documents whose text occurs in an earlier source too. The first source keeps it; a held-out copy always wins."""
    sources = artifact.stats["sources"]
    return Report(
        metadata={**numbers(artifact.stats), "sources": table({"source": key, **value} for key, value in sources.items())},
        checks={"balances": artifact.stats["duplicates"] == sum(row["duplicates"] for row in sources.values())},
    )


@stage(
    program="ops.dedup.fuzzy:fuzzy_duplicates",
    inputs={"normalized": each("normalized"), "minhash": each("minhash")},
    group="deduplication",
    kinds={"numpy"},
    checks={
        "no_source_is_wiped": "No source lost more than its alarm share.",
        "balances": "The sources' removals add up to the total.",
    },
)
def fuzzy_duplicates(artifact: Artifact) -> Report:
    """Near-copies, verified: a document is flagged only if its text is contained in one that stays.

    Look at the removal share per source and at the samples: a template with different contents must not be here.
    """
    sources = artifact.stats["sources"]
    return Report(
        metadata={
            **numbers(artifact.stats),
            "sources": table({"source": key, **value} for key, value in sources.items()),
            "removed_by_source": bars({key: value["removed"] for key, value in sources.items()}, "Near-copies per source", "documents"),
            "samples": table(artifact.read_json("samples.json")[:10]),
        },
        checks={
            "no_source_is_wiped": not artifact.stats["alarms"],
            "balances": artifact.stats["removed"] == sum(row["removed"] for row in sources.values()),
        },
    )


@stage(
    program="ops.dedup.paragraphs:paragraph_duplicates",
    inputs={"normalized": each("normalized")},
    group="deduplication",
    kinds={"arrow"},
    on_demand=PROFILE.repeated_paragraphs == "keep",
    checks={
        "no_source_is_wiped": "No source would lose more than its alarm share of bytes.",
        "balances": "The sources' repeated paragraphs and bytes add up to the total.",
    },
)
def paragraph_duplicates(artifact: Artifact) -> Report:
    """Paragraphs of train documents that occurred before, in any source, as spans: no text is rewritten here.

    Look at the samples, and at the share of bytes per source: licences repeat, and so do menus.
    """
    stats = artifact.stats
    sources = stats["sources"]
    return Report(
        metadata={
            **numbers(stats),
            "sources": table({"source": key, **value} for key, value in sources.items()),
            "removed_share": bars(
                {key: 100 * value["removed_share"] for key, value in sources.items()}, "Repeated text per source", "% of bytes"
            ),
            "samples": table(artifact.read_json("samples.json")[:10]),
        },
        checks={
            "balances": all(stats[name] == sum(row[name] for row in sources.values()) for name in ("paragraphs_removed", "bytes_removed"))
        },
        warnings={"no_source_is_wiped": not stats["alarms"]},
    )
