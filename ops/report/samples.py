"""Documents for people to read: of each source and outcome a few, each with why, and with what it stood beside."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.writer import Progress
from ops.attrition import Outcome
from ops.config import StoreConfig
from ops.join import read_labels, shards_of
from ops.report.config import AttritionConfig
from ops.report.passages import Passage, around, beginning, find_words, side_by_side
from ops.trace.documents import TracedDocument, documents_with_id, text_of
from ops.trace.fate import labels_at

HELD_OUT = "held_out/"  # evaluations of this prefix are the held-out documents of a source; their items are ids
COPIES = (Outcome.EXACT, Outcome.FUZZY, Outcome.HELD_OUT_DUPLICATE)


@dataclass(frozen=True)
class Beside:
    """What a removed document is shown against."""

    title: str
    source: str
    id: str
    url: str
    passage: Passage


@dataclass(frozen=True)
class Sample:
    """One document, its outcome, and the reason in words and as marks. `beside` is None for what was kept."""

    source: str
    outcome: str
    id: str
    url: str
    reason: str
    passage: Passage
    beside: Beside | None


@dataclass(frozen=True)
class LabelSets:
    """What all stages said, by source, and the store's rule."""

    per_source: Mapping[str, Artifacts]  # normalized, language, quality, contamination, tokens
    duplicates: Mapping[str, Artifact]  # exact, fuzzy
    rule: StoreConfig

    def of(self, source: str) -> dict[str, Artifact]:
        return {name: artifacts[source] for name, artifacts in self.per_source.items()}

    @property
    def normalized(self) -> Artifacts:
        return self.per_source["normalized"]


def samples_of(labels: LabelSets, config: AttritionConfig, documents: int, progress: Progress) -> list[Sample]:
    """Samples by source, then outcome in the order in which the store asks, then id.

    Args:
        documents: how many there are in all, for the progress.

    Memory: the labels of one shard, and the samples. The draw depends on the documents alone.
    """
    found: list[Sample] = []
    seen = 0
    for source in sorted(labels.normalized):
        drawn: dict[Outcome, list[tuple[str, str, int]]] = {outcome: [] for outcome in Outcome}
        sets = labels.of(source)
        for name in shards_of(source, sets, dict(labels.duplicates)):
            said, ids, _ = read_labels(source, name, sets, dict(labels.duplicates), labels.rule)
            outcomes = said.outcomes()
            for outcome in Outcome:  # ids ascend within a shard, so its first ones are its smallest
                rows = np.flatnonzero(outcomes == outcome)[: config.samples_per_outcome].tolist()
                drawn[outcome] = sorted([*drawn[outcome], *((ids[row].as_py(), name, row) for row in rows)])[: config.samples_per_outcome]
            seen += len(ids)
            progress(seen, documents, "documents")
        found += _described(source, drawn, labels, config)
    return found


def _described(
    source: str, drawn: Mapping[Outcome, list[tuple[str, str, int]]], labels: LabelSets, config: AttritionConfig
) -> list[Sample]:
    documents = {outcome: [_document(labels, source, id) for id, _, _ in places] for outcome, places in drawn.items()}
    kept = documents[Outcome.OUT]
    samples = []
    for outcome, places in drawn.items():
        for index, (document, (_, name, row)) in enumerate(zip(documents[outcome], places, strict=True)):
            text = text_of(labels.normalized[source], document)
            neighbour = kept[index % len(kept)] if kept and outcome not in (Outcome.HELD_OUT, Outcome.OUT) else None
            samples.append(_sample(document, text, outcome, _said(labels, source, name, row), neighbour, labels, config))
    return samples


def _sample(
    document: TracedDocument,
    text: str,
    outcome: Outcome,
    said: Mapping[str, Mapping[str, Any]],
    neighbour: TracedDocument | None,
    labels: LabelSets,
    config: AttritionConfig,
) -> Sample:
    passage, beside = beginning(text, config.excerpt_chars), None
    survivor = _survivor(said, labels) if outcome in COPIES else None
    exam = None
    if outcome is Outcome.CONTAMINATED:
        hits = said["contamination"].get("hits") or []
        passage = around(text, [(hit["start"], hit["end"]) for hit in hits], config.excerpt_chars)
        exam = _exam(text, hits, labels, config)
    if survivor is not None:
        passage, other = side_by_side(text, text_of(labels.normalized[survivor.source], survivor), config.excerpt_chars)
        beside = Beside("kept in its place", survivor.source, survivor.id, survivor.url, other)
    elif exam is not None:
        beside = exam
    elif neighbour is not None:
        other = beginning(text_of(labels.normalized[neighbour.source], neighbour), config.excerpt_chars)
        beside = Beside("kept, of the same source", neighbour.source, neighbour.id, neighbour.url, other)
    return Sample(document.source, outcome.name.lower(), document.id, document.url, _reason(outcome, said, labels.rule), passage, beside)


def _said(labels: LabelSets, source: str, name: str, row: int) -> dict[str, dict[str, Any]]:
    sets = {kind: labels_at(labels.per_source[kind][source], name, row) for kind in ("language", "quality", "contamination")}
    return sets | {kind: labels_at(artifact, f"{source}/{name}", row) for kind, artifact in labels.duplicates.items()}


def _document(labels: LabelSets, source: str, id: str) -> TracedDocument:
    return next(one for one in documents_with_id(source, labels.normalized[source], frozenset({id})) if not one.is_copy)


def _survivor(said: Mapping[str, Mapping[str, Any]], labels: LabelSets) -> TracedDocument | None:
    for kind in ("fuzzy", "exact"):
        row = said[kind]
        if row["is_duplicate"] and row.get("survivor_id") and row.get("survivor_source") in labels.normalized:
            return _document(labels, row["survivor_source"], row["survivor_id"])
    return None


def _exam(text: str, hits: list[Mapping[str, Any]], labels: LabelSets, config: AttritionConfig) -> Beside | None:
    """The held-out document that a leak is of, where what leaked stands in it. Items of benchmarks lie outside the lineage."""
    for hit in hits:
        source = hit["evaluation"].removeprefix(HELD_OUT)
        if not hit["evaluation"].startswith(HELD_OUT) or source not in labels.normalized:
            continue
        for document in documents_with_id(source, labels.normalized[source], frozenset({hit["item"]})):
            if not document.is_copy:
                exam = text_of(labels.normalized[source], document)
                leaked = text.encode()[hit["start"] : hit["end"]].decode()
                return Beside("held out", source, document.id, document.url, around(exam, find_words(leaked, exam), config.excerpt_chars))
    return None


def _reason(outcome: Outcome, said: Mapping[str, Mapping[str, Any]], rule: StoreConfig) -> str:
    match outcome:
        case Outcome.CONTAMINATED:
            return _leak(said["contamination"])
        case Outcome.EXACT | Outcome.FUZZY | Outcome.HELD_OUT_DUPLICATE:
            row = said["fuzzy"] if said["fuzzy"]["is_duplicate"] else said["exact"]
            share = f"{row['containment']:.1%} of its word 3-grams" if row.get("containment") is not None else "all of its text"
            return (
                f"{share} stand in {(row.get('survivor_id') or 'another document')[:12]} of {row.get('survivor_source') or 'some source'}"
            )
        case Outcome.EMPTIED:
            return "every paragraph of it stands in an earlier document, and was cut"
        case Outcome.LANGUAGE:
            return f"{said['language']['language']} at {said['language']['score']:.2f}; kept are {', '.join(rule.languages)}"
        case Outcome.QUALITY:
            return f"a quality of {said['quality']['score']:.3f}; kept are those of {rule.min_quality} and more"
        case Outcome.HELD_OUT:
            return "held out for evaluation, by the hash of its text"
        case Outcome.OUT:
            return f"{said['language']['language']} at {said['language']['score']:.2f}, quality {said['quality']['score']:.2f}"


def _leak(said: Mapping[str, Any]) -> str:
    """By evaluation and item, the item that the document has most of first."""
    coverage: dict[str, float] = {}
    for hit in said.get("hits") or []:
        name = f"{hit['evaluation']}, item {str(hit['item'])[:12]}"
        coverage[name] = max(coverage.get(name, 0.0), hit["coverage"])
    if coverage:
        return "; ".join(
            f"{share:.0%} of a passage of {name}" for name, share in sorted(coverage.items(), key=lambda row: (-row[1], row[0]))[:3]
        )
    return f"text of {', '.join(said.get('evaluations') or ['an evaluation'])}"
