"""Which documents hold passages of evaluations: how much of which, of whose item, and where."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import write_attributes
from ops.decontaminate.config import ContaminationConfig
from ops.decontaminate.lookup import PassageIndex
from ops.decontaminate.match import HELD_OUT, TRAIN, Coverage, Matcher, Standard
from ops.decontaminate.report import Samples
from ops.decontaminate.sample import sampled_train_texts, share_of
from ops.hashing.columns import TextColumn

HIT = pa.struct(
    [
        ("evaluation", pa.string()),
        ("item", pa.string()),
        ("field", pa.string()),
        ("kind", pa.string()),
        ("coverage", pa.float32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
    ]
)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("is_contaminated", pa.bool_()),
        ("max_coverage", pa.float32()),
        ("evaluations", pa.list_(pa.string())),
        ("hits", pa.list_(HIT)),
    ]
)


class ContaminationStats(Stats):
    """Documents flagged, by evaluation (a document may leak several), and what boilerplate rules let pass."""

    documents: int
    contaminated: int
    contaminated_held_out: int
    evaluations: dict[str, int]
    kinds: dict[str, int]  # flagged documents by what gave them away: long, short, function
    sampled_documents: int
    boilerplate_features: int  # of the index, dropped for this source: its own and everybody's
    spared: int  # documents that would be flagged if boilerplate counted


@program(version="2")
def flag_contamination(config: ContaminationConfig, normalized: Artifact, evaluation_ngrams: Artifact, out: Writer) -> ContaminationStats:
    """Flag every document that holds enough of a passage of an evaluation.

    Args:
        normalized: one source. Its held-out documents are judged against real evaluations alone.
        evaluation_ngrams: the index.
        out: co-partitioned; `id`, `is_contaminated: bool`, `max_coverage: float32` (of the passage that the document
            has most of), `evaluations: list<string>` and `hits` (of the passages that reach `min_coverage`; empty where
            none does): the evaluation, its item, the field, the kind of passage, its coverage, and the bytes of the
            text where its longest run stands. `samples.json`: flagged places for people to read.
    """
    index = PassageIndex.read(evaluation_ngrams)
    matcher = Matcher(index)
    boilerplate, sampled = find_source_boilerplate(matcher, normalized, config, out)
    boilerplate |= index.is_boilerplate
    standard, unfiltered = Standard.of(index, boilerplate), Standard.of(index, np.zeros_like(boilerplate))
    samples = Samples(config.samples)
    totals: Counter[str] = Counter()
    owners: Counter[str] = Counter()
    kinds_found: Counter[str] = Counter()

    def label(batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = TextColumn.of(batch["text"])
        kinds = np.where(batch["is_held_out"].to_numpy(zero_copy_only=False), HELD_OUT, TRAIN)
        hits = matcher.hits(texts)
        coverage = matcher.coverage(hits, kinds, standard)
        shares = largest_shares(coverage, batch.num_rows)
        flagged = shares >= config.min_coverage
        if boilerplate.any():
            raw = largest_shares(matcher.coverage(hits, kinds, unfiltered), batch.num_rows)
            totals["spared"] += int((~flagged & (raw >= config.min_coverage)).sum())
        found = attributed(index, coverage, batch.num_rows, config)
        names = [sorted({hit["evaluation"] for hit in row}) for row in found]
        owners.update(name for row in names for name in row)
        kinds_found.update(kind for row in found for kind in {hit["kind"] for hit in row})
        totals.update(documents=len(flagged), contaminated=int(flagged.sum()), held_out=int((flagged & (kinds == HELD_OUT)).sum()))
        for row in np.flatnonzero(flagged):
            samples.offer(batch["id"][row].as_py(), batch["text"][row].as_py(), found[row][0])
        columns = [
            batch["id"],
            pa.array(flagged),
            pa.array(shares.astype(np.float32)),
            pa.array(names, SCHEMA.field("evaluations").type),
            pa.array(found, SCHEMA.field("hits").type),
        ]
        return pa.record_batch(columns, schema=SCHEMA)

    write_attributes(normalized, out, label, columns=["id", "text", "is_held_out"], schema=SCHEMA, batch_rows=config.batch_rows)
    out.write_json("samples.json", samples.listing())
    return ContaminationStats(
        documents=totals["documents"],
        contaminated=totals["contaminated"],
        contaminated_held_out=totals["held_out"],
        evaluations=dict(sorted(owners.items())),
        kinds=dict(sorted(kinds_found.items())),
        sampled_documents=sampled,
        boilerplate_features=int(boilerplate.sum()),
        spared=totals["spared"],
    )


def find_source_boilerplate(
    matcher: Matcher, normalized: Artifact, config: ContaminationConfig, out: Writer
) -> tuple[NDArray[np.bool_], int]:
    """Entries that a share of the source's own sampled train documents have, and the size of the sample."""
    counts = np.zeros(len(matcher.index.features), np.int64)
    sampled = 0
    for texts in sampled_train_texts(normalized, config.boilerplate_sample_documents, config.batch_rows):
        matcher.count_documents(TextColumn.of(texts), counts)
        sampled += len(texts)
        out.progress(sampled, config.boilerplate_sample_documents, "documents searched for boilerplate")
    return counts >= share_of(sampled, config.boilerplate_share, config.boilerplate_documents), sampled


def largest_shares(coverage: Coverage, rows: int) -> NDArray[np.float64]:
    """[rows]: the coverage of the passage that each row has most of; 0 without any."""
    shares = np.zeros(rows)
    np.maximum.at(shares, coverage.rows, coverage.shares)
    return shares


def attributed(index: PassageIndex, coverage: Coverage, rows: int, config: ContaminationConfig) -> list[list[dict[str, Any]]]:
    """For each row the passages that reach the threshold as values of `HIT`: those that it has most of first."""
    reached = np.flatnonzero(coverage.shares >= config.min_coverage)
    order = reached[np.lexsort((coverage.passages[reached], -coverage.shares[reached], coverage.rows[reached]))]
    named = index.passages.take(pa.array(coverage.passages[order])).to_pylist()
    found: list[list[dict[str, Any]]] = [[] for _ in range(rows)]
    for place, passage in zip(order, named, strict=True):
        hits = found[coverage.rows[place]]
        if len(hits) < config.max_hits:
            hits.append(
                {
                    "evaluation": index.evaluations[passage["evaluation"]],
                    "item": passage["item"],
                    "field": passage["field"],
                    "kind": passage["kind"],
                    "coverage": float(np.float32(coverage.shares[place])),
                    "start": int(coverage.starts[place]),
                    "end": int(coverage.ends[place]),
                }
            )
    return found
