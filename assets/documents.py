"""normalized: documents with an identity, sorted shards, and the held-out split."""

from assets.lineage import same
from assets.partitions import SOURCES
from assets.report import first_shard, numbers, samples
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact


@stage(
    program="ops.normalize:normalize",
    inputs={"extracted": same("extracted")},
    partitions=SOURCES,
    group="documents",
    kinds={"arrow"},
    checks={"balances": "Rows in = documents + copies within the source + blank ones."},
)
def normalized(artifact: Artifact) -> Report:
    """One row per distinct text, sorted by id, in shards that every later attribute repeats row by row.

    `id` is a hash of the text, so equal ids mean equal texts. A fixed share, chosen by that hash, is held out
    for evaluation and never trained on.
    """
    stats = artifact.stats
    return Report(
        metadata={
            **numbers(stats),
            "documents_sample": samples(artifact, first_shard(artifact), ["id", "source_id", "is_held_out", "text"]),
        },
        checks={"balances": stats["rows"] == stats["documents"] + stats["duplicates"] + stats["blank"]},
    )
