"""raw -> extracted: from the outside world to text, one partition per source."""

from assets.lineage import same
from assets.partitions import SOURCES
from assets.profile import Profile
from assets.report import counts, first_shard, numbers, samples
from assets.snapshots import latest_snapshot
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact
from ops.crawl.config import PydocSource, RawConfig


def raw_config(profile: Profile, source: str | None) -> RawConfig:
    """The source as the profile declares it; a live one under its newest snapshot."""
    spec = profile.sources[str(source)]
    if isinstance(spec, PydocSource) and (instant := latest_snapshot(profile.storage.root, str(source))):
        spec = spec.model_copy(update={"snapshot": instant})
    return RawConfig(source=spec)


@stage(
    program="ops.crawl.raw:raw",
    config=raw_config,
    partitions=SOURCES,
    group="crawl",
    kinds={"warc"},
    checks={"is_not_empty": "Something was fetched: a stage that succeeds having done nothing is a failure."},
)
def raw(artifact: Artifact) -> Report:
    """Bytes as the outside world gave them: WARC files of a crawl, or the files below a prefix.

    Made of a source's declaration and a fingerprint of what lay there. Look at the fetch errors.
    """
    stats = artifact.stats
    return Report(
        metadata={
            **numbers(stats),
            "fetch_errors_by_reason": counts(stats.get("fetch_errors_by_reason", {}), "reason"),
            "index_left_out": counts(stats.get("index_left_out", {}), "reason"),
            "fetch_errors_sample": samples(artifact, "fetch_errors.parquet", ["uri", "reason", "detail"]),
        },
        checks={"is_not_empty": artifact.stats["records"] > 0},
    )


@stage(
    program="ops.extract.documents:extract",
    inputs={"raw": same("raw")},
    partitions=SOURCES,
    group="crawl",
    kinds={"arrow"},
    checks={"balances": "Every record ended as a document or as a typed reject."},
)
def extracted(artifact: Artifact) -> Report:
    """Text and where it came from: each document keeps its WARC file, offset and length.

    Look at the rejects: every record that did not become a document is there with its reason.
    """
    stats = artifact.stats
    rejects = stats.get("rejects", {})
    return Report(
        metadata={
            **numbers(stats),
            "rejects": counts(rejects, "reason"),
            "rejected": samples(artifact, "rejects.parquet", ["uri", "reason", "detail"]),
            "documents_sample": samples(artifact, first_shard(artifact), ["source_id", "media_type", "text"]),
        },
        checks={"balances": stats["records"] == stats["documents"] + sum(rejects.values())},
    )
