"""What must not be trained on, as an exact index: the texts of evaluations, and the held-out documents."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.config import EvaluationNgramsConfig, EvaluationSet
from ops.decontaminate.evaluations import EvaluationError, files_of, items_of, observe, texts_of
from ops.decontaminate.features import (
    EVALUATIONS_FILE,
    HELD_OUT_FOLDER,
    INDEX_FILE,
    SCHEMA,
    FeatureIndex,
    features_of_column,
)
from ops.decontaminate.sample import sampled_train_texts
from ops.hashing.columns import TextColumn
from ops.shards import read_batches, shard_names, write_table

TEXTS_PER_BATCH = 1_000


class EvaluationStats(Stats):
    """One evaluation: items read, texts found in them, distinct features."""

    items: int
    texts: int
    features: int


class EvaluationNgramsStats(Stats):
    """Features in the index, those that are everybody's boilerplate, and what each evaluation gave."""

    features: int
    boilerplate_features: int
    evaluations: dict[str, EvaluationStats]
    missing: tuple[str, ...]  # sets that are not required and have no files


@program(version="1")
def index_evaluations(config: EvaluationNgramsConfig, normalized: Artifacts, out: Writer) -> EvaluationNgramsStats:
    """Index the features of every evaluation and of every held-out document.

    Args:
        normalized: every source; its held-out rows are the evaluation `held_out/{source}`, and its train rows
            say which features are boilerplate.
        out: `index.parquet`: `feature: uint64` ascending, `evaluations: list<int32>` (places in the list of
            `evaluations.json`), `is_boilerplate: bool`.

    Raises:
        EvaluationError: required sets are missing or give no features, or files changed since they were observed.
    """
    gathered, missing = gather_sets(config, out)
    if config.held_out:
        gathered += [gather_held_out(source, normalized[source], config, out) for source in sorted(normalized)]
    index = merge(gathered, config)
    is_boilerplate = find_boilerplate(index, normalized, config, out)
    owners = pa.ListArray.from_arrays(pa.array(index.owner_offsets), pa.array(index.owners))
    table = pa.table([pa.array(index.features), owners.cast(SCHEMA.field("evaluations").type), pa.array(is_boilerplate)], schema=SCHEMA)
    write_table(out, INDEX_FILE, table)
    stats = {entry.name: EvaluationStats(items=entry.items, texts=entry.texts, features=len(entry.features)) for entry in gathered}
    out.write_json(
        EVALUATIONS_FILE,
        {
            "evaluations": [{"name": name, **stats[name].model_dump()} for name in stats],
            "missing": missing,
            "ngram_tokens": config.ngram_tokens,
            "short_paragraph_tokens": config.short_paragraph_tokens,
        },
    )
    return EvaluationNgramsStats(
        features=len(index.features), boilerplate_features=int(is_boilerplate.sum()), evaluations=stats, missing=tuple(missing)
    )


@dataclass
class Gathered:
    """One evaluation's distinct features, ascending, and what they were made of."""

    name: str
    items: int = 0
    texts: int = 0
    features: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    def add_items(self, texts: pa.Array, ngram_tokens: int, short_paragraph_tokens: int) -> None:
        """Add evaluation texts: their n-grams, or their short paragraphs where they have nothing longer.

        A short paragraph beside longer ones ("Options:", "from typing import List") identifies no item.
        """
        counts = self.add_ngrams(texts, ngram_tokens)
        short = TextColumn.of(texts.filter(pa.array(counts == 0)))
        found, _ = features_of_column(short, ngram_tokens, short_paragraph_tokens)
        self.features = np.union1d(self.features, found)

    def add_ngrams(self, texts: pa.Array, ngram_tokens: int) -> NDArray[np.int64]:
        """Add the n-grams of texts; returns how many each text has."""
        found, starts = features_of_column(TextColumn.of(texts), ngram_tokens, ngram_tokens)
        self.features = np.union1d(self.features, found)
        self.texts += len(texts)
        return np.diff(starts)


def gather_sets(config: EvaluationNgramsConfig, out: Writer) -> tuple[list[Gathered], list[str]]:
    """Features of the configured sets, and the names of the optional ones without files."""
    gathered, missing, broken = [], [], []
    for evaluation in config.evaluations:
        if not files_of(evaluation):
            if evaluation.required:
                broken.append(f"{evaluation.name} has no file {evaluation.glob} below {evaluation.root}")
            missing.append(evaluation.name)
            continue
        if evaluation.observed and observe(evaluation) != evaluation.observed:
            broken.append(f"{evaluation.name} below {evaluation.root} changed since this build was planned")
            continue
        found = gather_set(evaluation, config, out)
        if evaluation.required and not len(found.features):
            broken.append(f"{evaluation.name}: the fields {', '.join(evaluation.fields)} give no features in {found.items} items")
        gathered.append(found)
    if broken:
        raise EvaluationError(
            f"evaluations that must be guarded can't be: {'; '.join(broken)}. "
            "Provide them, plan again, or set required: false to train unguarded"
        )
    return gathered, missing


def gather_set(evaluation: EvaluationSet, config: EvaluationNgramsConfig, out: Writer) -> Gathered:
    gathered = Gathered(evaluation.name)
    waiting: list[str] = []
    for path in files_of(evaluation):
        for item in items_of(path):
            gathered.items += 1
            waiting.extend(text for name in evaluation.fields for text in texts_of(item, name))
            if len(waiting) >= TEXTS_PER_BATCH:
                gathered.add_items(pa.array(waiting, pa.string()), config.ngram_tokens, config.short_paragraph_tokens)
                waiting.clear()
                out.progress(gathered.items, None, "items")
    gathered.add_items(pa.array(waiting, pa.string()), config.ngram_tokens, config.short_paragraph_tokens)
    return gathered


def gather_held_out(source: str, normalized: Artifact, config: EvaluationNgramsConfig, out: Writer) -> Gathered:
    """Features of a source's held-out documents: n-grams alone, for a short line is not a leak of a document."""
    gathered = Gathered(f"{HELD_OUT_FOLDER}{source}")
    for texts in _held_out_texts(normalized, config.batch_rows):
        gathered.items += len(texts)
        gathered.add_ngrams(texts, config.ngram_tokens)
        out.progress(gathered.items, None, "held-out documents")
    return gathered


def _held_out_texts(normalized: Artifact, batch_rows: int) -> Iterator[pa.Array]:
    for name in shard_names(normalized):
        for batch in read_batches(normalized, name, ["text", "is_held_out"], batch_rows):
            texts = batch["text"].filter(batch["is_held_out"])
            if len(texts):
                yield texts


def merge(gathered: list[Gathered], config: EvaluationNgramsConfig) -> FeatureIndex:
    """One sorted index of all features, each with its owners."""
    features = np.concatenate([np.zeros(0, np.uint64), *(entry.features for entry in gathered)])
    owners = np.concatenate([np.zeros(0, np.int32), *(np.full(len(entry.features), n, np.int32) for n, entry in enumerate(gathered))])
    order = np.lexsort((owners, features))
    unique, firsts = np.unique(features[order], return_index=True)
    return FeatureIndex(
        features=unique,
        owner_offsets=np.append(firsts, len(features)).astype(np.int32),
        owners=owners[order].astype(np.int32),
        is_boilerplate=np.zeros(len(unique), bool),
        evaluations=tuple(entry.name for entry in gathered),
        ngram_tokens=config.ngram_tokens,
        short_paragraph_tokens=config.short_paragraph_tokens,
    )


def find_boilerplate(index: FeatureIndex, normalized: Artifacts, config: EvaluationNgramsConfig, out: Writer) -> NDArray[np.bool_]:
    """Entries that many train documents of many sources have: speeches, licences, formulas everyone quotes.

    A feature that is frequent in fewer sources stays a leak.
    """
    sources_with = np.zeros(len(index.features), np.int64)
    if len(normalized) < config.boilerplate_sources or not len(index.features):
        return sources_with > 0
    for done, source in enumerate(sorted(normalized)):
        counts = np.zeros(len(index.features), np.int64)
        for texts in sampled_train_texts(normalized[source], config.boilerplate_sample_documents, config.batch_rows):
            index.count_documents(TextColumn.of(texts), counts)
            out.progress(done, len(normalized), "sources searched for boilerplate")
        sources_with += counts >= config.boilerplate_documents
    return sources_with >= config.boilerplate_sources
