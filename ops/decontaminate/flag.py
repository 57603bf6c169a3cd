"""Which documents hold evaluation text: by the worst paragraph's share of n-grams that an evaluation has too."""

from collections import Counter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import write_attributes
from ops.config import ContaminationConfig
from ops.decontaminate.features import FeatureIndex
from ops.decontaminate.sample import sampled_train_texts, share_of
from ops.hashing.code_points import character_classes
from ops.hashing.columns import TextColumn
from ops.hashing.paragraphs import DROPPED, HIT, MISS, column_overlaps

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("is_contaminated", pa.bool_()),
        ("max_overlap", pa.float32()),
        ("matched_ngrams", pa.list_(pa.uint64())),
        ("evaluations", pa.list_(pa.string())),
    ]
)
TRAIN, HELD_OUT = 0, 1  # kinds of documents: the held-out ones are no leak of themselves


class ContaminationStats(Stats):
    """Documents flagged, by evaluation (a document may leak several), and what boilerplate rules let pass."""

    documents: int
    contaminated: int
    contaminated_held_out: int
    evaluations: dict[str, int]
    sampled_documents: int
    boilerplate_features: int  # of the index, dropped for this source: its own and everybody's
    spared: int  # documents that would be flagged if boilerplate counted


@program(version="1")
def flag_contamination(config: ContaminationConfig, normalized: Artifact, evaluation_ngrams: Artifact, out: Writer) -> ContaminationStats:
    """Flag every document that holds a paragraph of an evaluation.

    Args:
        normalized: one source. Its held-out documents are judged against real evaluations alone.
        evaluation_ngrams: the index.
        out: co-partitioned; `id`, `is_contaminated: bool`, `max_overlap: float32` (of the worst paragraph),
            `matched_ngrams: list<uint64>` and `evaluations: list<string>` (of the paragraphs that reach
            `min_overlap`; empty where none does).
    """
    index = FeatureIndex.read(evaluation_ngrams)
    boilerplate, sampled = find_source_boilerplate(index, normalized, config, out)
    boilerplate |= index.is_boilerplate
    meanings, unfiltered = meanings_of(index, boilerplate), meanings_of(index, np.zeros_like(boilerplate))
    totals: Counter[str] = Counter()
    owners: Counter[str] = Counter()

    def label(batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = TextColumn.of(batch["text"])
        kinds = np.where(batch["is_held_out"].to_numpy(zero_copy_only=False), HELD_OUT, TRAIN)
        overlaps, places, starts = overlaps_of(index, meanings, texts, kinds, config.min_overlap)
        flagged = overlaps >= config.min_overlap
        if boilerplate.any():
            raw, _, _ = overlaps_of(index, unfiltered, texts, kinds, config.min_overlap)
            totals["spared"] += int((~flagged & (raw >= config.min_overlap)).sum())
        matched = [np.unique(places[starts[row] : starts[row + 1]]) for row in range(len(flagged))]
        names = [index.owners_of(found) for found in matched]
        owners.update(name for row in names for name in row)
        totals.update(documents=len(flagged), contaminated=int(flagged.sum()), held_out=int((flagged & (kinds == HELD_OUT)).sum()))
        ngrams = pa.array([index.features[found[: config.max_matched_ngrams]] for found in matched], SCHEMA.field("matched_ngrams").type)
        rows = [
            batch["id"],
            pa.array(flagged),
            pa.array(overlaps.astype(np.float32)),
            ngrams,
            pa.array(names, SCHEMA.field("evaluations").type),
        ]
        return pa.record_batch(rows, schema=SCHEMA)

    write_attributes(normalized, out, label, columns=["id", "text", "is_held_out"], schema=SCHEMA, batch_rows=config.batch_rows)
    return ContaminationStats(
        documents=totals["documents"],
        contaminated=totals["contaminated"],
        contaminated_held_out=totals["held_out"],
        evaluations=dict(sorted(owners.items())),
        sampled_documents=sampled,
        boilerplate_features=int(boilerplate.sum()),
        spared=totals["spared"],
    )


def find_source_boilerplate(
    index: FeatureIndex, normalized: Artifact, config: ContaminationConfig, out: Writer
) -> tuple[NDArray[np.bool_], int]:
    """Entries that a share of the source's own sampled train documents have, and the size of the sample."""
    counts = np.zeros(len(index.features), np.int64)
    sampled = 0
    for texts in sampled_train_texts(normalized, config.boilerplate_sample_documents, config.batch_rows):
        index.count_documents(TextColumn.of(texts), counts)
        sampled += len(texts)
        out.progress(sampled, config.boilerplate_sample_documents, "documents searched for boilerplate")
    return counts >= share_of(sampled, config.boilerplate_share, config.boilerplate_documents), sampled


def meanings_of(index: FeatureIndex, boilerplate: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """[kinds, entries]: what each entry means for train and for held-out documents."""
    train = np.full(len(index.features), HIT)
    held_out = np.where(index.belongs_to_an_evaluation, HIT, MISS)
    return np.where(boilerplate, DROPPED, np.stack([train, held_out])).astype(np.uint8)


def overlaps_of(
    index: FeatureIndex, meanings: NDArray[np.uint8], texts: TextColumn, kinds: NDArray[np.int64], min_overlap: float
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """See `ops.hashing.paragraphs.column_overlaps`."""
    overlaps, places, starts = column_overlaps(
        texts.data,
        texts.offsets,
        character_classes(),
        index.ngram_tokens,
        index.short_paragraph_tokens,
        index.features,
        index.prefixes,
        index.shift,
        meanings,
        kinds,
        min_overlap,
    )
    return overlaps, places, starts
