"""What the removal of repeated paragraphs does to each source."""

from collections.abc import Mapping

from infra.artifacts.program import Stats
from ops.dataflow.shard import Tally
from ops.dedup.numbering import Numbering


class ParagraphDedupSourceStats(Stats):
    """One source: what it has, and what occurred before. Emptied documents have nothing left outside the spans."""

    documents: int
    documents_with_repeats: int
    documents_emptied: int
    paragraphs: int  # long enough to be looked at
    paragraphs_removed: int
    bytes: int
    bytes_removed: int
    removed_share: float  # of the bytes


class ParagraphDedupStats(Stats):
    """Paragraphs looked at and removed; `alarms` names sources that lost too much."""

    documents: int
    paragraphs: int
    paragraphs_removed: int
    bytes_removed: int
    not_looked_at: int  # paragraphs beyond the first million of a document
    sources: dict[str, ParagraphDedupSourceStats]
    alarms: tuple[str, ...]


def stats_of(numbering: Numbering, tally: Tally, alarm_share: float) -> ParagraphDedupStats:
    """The counters of all shards, by source and in all."""
    documents = dict.fromkeys(numbering.sources, 0)
    for shard in numbering.shards:
        documents[shard.source] += shard.rows
    names = ("documents_with_repeats", "documents_emptied", "paragraphs", "paragraphs_removed", "bytes", "bytes_removed")
    sources = {
        source: ParagraphDedupSourceStats(
            documents=documents[source],
            **{name: tally[f"{name}/{source}"] for name in names},
            removed_share=round(tally[f"bytes_removed/{source}"] / max(1, tally[f"bytes/{source}"]), 6),
        )
        for source in numbering.sources
    }
    return ParagraphDedupStats(
        documents=numbering.documents,
        paragraphs=sum(source.paragraphs for source in sources.values()),
        paragraphs_removed=sum(source.paragraphs_removed for source in sources.values()),
        bytes_removed=sum(source.bytes_removed for source in sources.values()),
        not_looked_at=tally["not_looked_at"],
        sources=sources,
        alarms=alarms_of(sources, alarm_share),
    )


def alarms_of(sources: Mapping[str, ParagraphDedupSourceStats], share: float) -> tuple[str, ...]:
    """One sentence for each source that loses more than the share of its bytes."""
    return tuple(
        f"{name} loses {stats.bytes_removed} of {stats.bytes} bytes to repeated paragraphs "
        f"({stats.removed_share:.1%}, alarm at {share:.1%}; {stats.documents_emptied} documents are left empty)"
        for name, stats in sources.items()
        if stats.bytes_removed > share * stats.bytes
    )
