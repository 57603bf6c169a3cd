"""Near-duplicates across sources, verified: signatures propose, texts decide, no source shrinks silently."""

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
import pyarrow as pa

from infra.artifacts.artifact import Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.dataflow.budget import Budget
from ops.dedup.candidates import Links, propose_links
from ops.dedup.components import Components, components_of
from ops.dedup.config import FuzzyDedupConfig
from ops.dedup.members import Members, collect_members
from ops.dedup.numbering import Numbering, Shard
from ops.dedup.report import Samples
from ops.dedup.verify import Verdict, judge
from ops.shards import read_table, write_table

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("is_duplicate", pa.bool_()),
        ("survivor_source", pa.string()),
        ("survivor_id", pa.string()),
        ("cluster_id", pa.string()),
        ("containment", pa.float32()),
        ("jaccard", pa.float32()),
    ]
)
DECISIONS_PER_BATCH = 1_024  # and a heartbeat each
_DECISIONS = pa.schema([("number", pa.int64()), ("survivor", pa.int64()), *(SCHEMA.field(n) for n in SCHEMA.names[3:])])


class FuzzyDedupSourceStats(Stats):
    """One source: documents in all, with a candidate partner, removed; and the removed share of all."""

    documents: int
    candidates: int
    removed: int
    removed_chars: int
    removed_for_held_out: int  # train documents that a held-out text makes redundant, or that contain one
    spared_as_template: int  # much like a kept one, but their neighbours say: fillings of one template
    removed_share: float


class FuzzyDedupStats(Stats):
    """From buckets over clusters and comparisons to removals; `alarms` names sources that lost too much."""

    documents: int
    shared_buckets: int
    largest_bucket: int
    capped_buckets: int
    links: int
    clusters: int
    largest_cluster: int
    candidates: int
    comparisons: int
    oversized: int  # longer than max_text_chars, so never compared
    removed: int
    sources: dict[str, FuzzyDedupSourceStats]
    alarms: tuple[str, ...]


class RemovalAlarmError(RuntimeError):
    """A source lost more than its alarm share, and the config is strict."""


@program(version="3")
def fuzzy_duplicates(config: FuzzyDedupConfig, normalized: Artifacts, minhash: Artifacts, out: Writer) -> FuzzyDedupStats:
    """Flag every document that another, kept document makes redundant.

    Args:
        normalized: every source.
        minhash: the signatures of each, of equal parameters.
        out: `{source}/` co-partitioned with each source; `id`, `is_duplicate: bool`, `survivor_source` and
            `survivor_id` (null where the document itself survives), `cluster_id` (the id of the cluster's first
            member; null without a candidate partner), `containment` and `jaccard` (float32, with the survivor or,
            for a kept document, with the nearest it was compared with; null without a comparison).
            `samples.json`: removed and spared pairs of each source.

    Raises:
        ValueError: the two inputs have different sources, or signatures of different parameters.
        RemovalAlarmError: see `FuzzyDedupConfig.strict`.
    """
    check_signatures(normalized, minhash)
    numbering = Numbering.of(normalized)
    links = propose_links(minhash, numbering, config.max_bucket_documents, out)
    components = components_of(links.left, links.right)
    with out.scratch_folder() as folder:
        batch_bytes = Budget.of(config.memory_bytes).batch_bytes
        members = collect_members(folder, normalized, minhash, numbering, components, batch_bytes, config.batch_rows, out)
        decided = decide(members, config, numbering, out)
    for shard in numbering.shards:
        ids = read_table(normalized[shard.source], shard.name, ["id"])["id"].combine_chunks()
        write_table(out, f"{shard.source}/{shard.name}", flags(shard, ids, decided.table, numbering))
    out.write_json("samples.json", decided.samples.listing())
    stats = stats_of(config, numbering, links, components, decided)
    if config.strict and stats.alarms:
        raise RemovalAlarmError(
            f"{'; '.join(stats.alarms)}. Read the samples of a run that is not strict, then raise min_containment or alarm_share"
        )
    return stats


def check_signatures(normalized: Artifacts, minhash: Artifacts) -> None:
    """Refuse inputs that can't be joined."""
    if set(normalized) != set(minhash):
        odd = ", ".join(sorted(set(normalized) ^ set(minhash)))
        raise ValueError(f"normalized and minhash hold different sources ({odd}); build both for every source")
    parameters = {source: minhash[source].stats["parameters"] for source in sorted(minhash)}
    for source, found in parameters.items():
        if found != next(iter(parameters.values())):
            raise ValueError(
                f"minhash of {source} was built with {found}, that of {next(iter(parameters))} with other parameters; rebuild one"
            )


@dataclass
class Decided:
    """The verdicts on all candidates as a table sorted by number, and what was counted on the way."""

    samples: Samples
    table: pa.Table = field(default_factory=_DECISIONS.empty_table)
    removed: Counter[str] = field(default_factory=Counter)
    removed_chars: Counter[str] = field(default_factory=Counter)
    removed_for_held_out: Counter[str] = field(default_factory=Counter)
    spared_as_template: Counter[str] = field(default_factory=Counter)
    comparisons: int = 0
    oversized: int = 0


def decide(members: Members, config: FuzzyDedupConfig, numbering: Numbering, out: Writer) -> Decided:
    """Judge every cluster."""
    decided = Decided(Samples(config.samples))
    batches: list[pa.RecordBatch] = []
    verdicts = itertools.chain.from_iterable(
        judge((member for _, member in group), config) for _, group in itertools.groupby(members.clusters(), key=itemgetter(0))
    )
    rows = (_counted(decided, verdict, config, numbering) for verdict in verdicts)
    for done, chunk in enumerate(itertools.batched(rows, DECISIONS_PER_BATCH)):
        columns = zip(*chunk, strict=True)
        batches.append(
            pa.record_batch([pa.array(column, field.type) for column, field in zip(columns, _DECISIONS, strict=True)], _DECISIONS)
        )
        out.progress(done * DECISIONS_PER_BATCH + len(chunk), len(members.numbers), "candidates judged")
    decided.table = pa.Table.from_batches(batches, _DECISIONS).combine_chunks().sort_by("number")
    return decided


def _counted(decided: Decided, verdict: Verdict, config: FuzzyDedupConfig, numbering: Numbering) -> tuple[int | float | str | None, ...]:
    """Count a verdict and turn it into a row of `_DECISIONS`, which holds no text."""
    member, survivor, nearest = verdict.member, verdict.survivor, verdict.nearest
    source = numbering.source_of(member.number)
    decided.samples.offer(verdict, source, numbering.source_of(nearest.number) if nearest else source)
    decided.comparisons += verdict.comparisons
    decided.oversized += member.chars > config.max_text_chars
    decided.spared_as_template[source] += verdict.is_template
    if survivor:
        decided.removed[source] += 1
        decided.removed_chars[source] += member.chars
        decided.removed_for_held_out[source] += survivor.is_held_out and not member.is_held_out
    return (
        member.number,
        survivor.number if survivor else None,
        survivor.id if survivor else None,
        verdict.cluster_id,
        verdict.containment,
        verdict.similarity.jaccard if verdict.similarity else None,
    )


def flags(shard: Shard, ids: pa.Array, decisions: pa.Table, numbering: Numbering) -> pa.Table:
    """The rows of one shard: all of `ids`, with what was decided about those that had a candidate partner."""
    numbers = decisions["number"].to_numpy()
    first, last = np.searchsorted(numbers, [shard.start, shard.start + shard.rows])
    decided = decisions.slice(first, last - first)
    place = np.zeros(shard.rows, np.int64)
    known = np.zeros(shard.rows, bool)
    rows = numbers[first:last] - shard.start
    place[rows], known[rows] = np.arange(len(rows)), True
    spread = decided.take(pa.array(place, mask=~known))
    survivors = spread["survivor"].combine_chunks()
    is_duplicate = survivors.is_valid()
    sources = numbering.sources_of(survivors.fill_null(0).to_numpy())
    columns = {
        "id": ids,
        "is_duplicate": is_duplicate,
        "survivor_source": sources.filter(is_duplicate).take(_ranks(is_duplicate)),
        **{name: spread[name].combine_chunks() for name in SCHEMA.names[3:]},
    }
    return pa.table(columns, schema=SCHEMA)


def _ranks(mask: pa.Array) -> pa.Array:
    """For each true row its place among the true rows; null elsewhere."""
    chosen = mask.to_numpy(zero_copy_only=False)
    return pa.array(np.cumsum(chosen) - 1, mask=~chosen)


def stats_of(config: FuzzyDedupConfig, numbering: Numbering, links: Links, components: Components, decided: Decided) -> FuzzyDedupStats:
    documents: Counter[str] = Counter()
    for shard in numbering.shards:
        documents[shard.source] += shard.rows
    candidates = np.bincount(numbering.source_indices(components.members), minlength=len(numbering.sources))
    sources = {
        source: FuzzyDedupSourceStats(
            documents=documents[source],
            candidates=int(candidates[index]),
            removed=decided.removed[source],
            removed_chars=decided.removed_chars[source],
            removed_for_held_out=decided.removed_for_held_out[source],
            spared_as_template=decided.spared_as_template[source],
            removed_share=round(decided.removed[source] / max(1, documents[source]), 6),
        )
        for index, source in enumerate(numbering.sources)
    }
    return FuzzyDedupStats(
        documents=numbering.documents,
        shared_buckets=links.shared_buckets,
        largest_bucket=links.largest_bucket,
        capped_buckets=links.capped_buckets,
        links=len(links.left),
        clusters=components.count,
        largest_cluster=components.largest,
        candidates=len(components.members),
        comparisons=decided.comparisons,
        oversized=decided.oversized,
        removed=decided.removed.total(),
        sources=sources,
        alarms=alarms_of(sources, config.alarm_share),
    )


def alarms_of(sources: Mapping[str, FuzzyDedupSourceStats], share: float) -> tuple[str, ...]:
    """One sentence for each source that loses more than the share."""
    return tuple(
        f"{name} loses {stats.removed} of {stats.documents} documents to near-duplicates ({stats.removed_share:.1%}, alarm at {share:.1%})"
        for name, stats in sources.items()
        if stats.removed > share * stats.documents
    )
