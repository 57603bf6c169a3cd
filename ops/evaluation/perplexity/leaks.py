"""The leak manifest: named benchmarks never enter regular tracking, nor does what is tracked enter training.

A document of a slice is left out where it holds a benchmark's item: whole (by hash of its text, though it has fewer words than an
n-gram), or most of a passage (by the n-gram index that keeps benchmarks out of the training data too). What is left is listed by
hash, for training to exclude.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from infra.archive.records import escape
from infra.artifacts.artifact import Artifact
from ops.decontaminate.config import EvaluationSet
from ops.decontaminate.evaluations import EvaluationError, files_of, items_of, observe, texts_of
from ops.decontaminate.lookup import PassageIndex
from ops.decontaminate.match import HELD_OUT, Matcher, Standard
from ops.evaluation.perplexity.slices import Slice, SliceError, TextDocument
from ops.hashing.columns import TextColumn

MIN_ITEM_CHARACTERS = 16  # of a normal form; "yes" and "12" are answers of benchmarks and identify no item


@dataclass(frozen=True)
class Leak:
    """A document that is not scored, because it is or holds a benchmark's item."""

    key: str
    document: str
    benchmark: str
    by: str  # `hash` or `n-grams`


def normal_form(text: str) -> str:
    """A text without what a copy of it may differ in: case and white space."""
    return " ".join(text.casefold().split())


def text_hash(text: str) -> str:
    """16 hex of the text's normal form."""
    return hashlib.sha256(normal_form(text).encode()).hexdigest()[:16]


def item_hashes(benchmarks: Sequence[EvaluationSet]) -> dict[str, str]:
    """Hash of every text of every item -> its benchmark.

    Raises:
        EvaluationError: a required benchmark has no files, or files changed since they were observed.
    """
    found: dict[str, str] = {}
    for benchmark in benchmarks:
        paths = files_of(benchmark)
        if benchmark.required and not paths:
            raise EvaluationError(f"{benchmark.name}: no file {benchmark.glob} below {benchmark.root}; provide it, or set required: false")
        if benchmark.observed and observe(benchmark) != benchmark.observed:
            raise EvaluationError(f"{benchmark.name}: files below {benchmark.root} changed since this was planned; plan it again")
        for path in paths:
            for item in items_of(path):
                texts = (escape(text) for name in benchmark.fields for text in texts_of(item, name))
                found.update((text_hash(text), benchmark.name) for text in texts)
    return found


def without_leaks(
    slices: Sequence[Slice], hashes: dict[str, str], evaluation_ngrams: Artifact, min_coverage: float
) -> tuple[list[Slice], list[Leak]]:
    """Slices without the documents that leak, and those.

    Args:
        hashes: `item_hashes`.
        evaluation_ngrams: the index of `ops.decontaminate.index`; its held-out entries are no leak here.

    Raises:
        SliceError: nothing of a slice is left.
    """
    matcher = Matcher(PassageIndex.read(evaluation_ngrams))
    standard = Standard.of(matcher.index, matcher.index.is_boilerplate)
    kept, leaks = [], list[Leak]()
    for found in slices:
        owners = _owners(matcher, standard, found.documents, min_coverage)
        own: list[TextDocument] = []
        for document, names in zip(found.documents, owners, strict=True):
            if (benchmark := _whole(document, hashes)) is not None:
                leaks.append(Leak(found.key, document.name, benchmark, "hash"))
            elif names:
                leaks.append(Leak(found.key, document.name, ", ".join(names), "n-grams"))
            else:
                own.append(document)
        if not own:
            raise SliceError(f"slice {found.key}: every document is or holds an item of {leaks[-1].benchmark}; leave the slice out")
        kept.append(Slice(found.key, own, found.loss, found.source, found.fidelity, found.more_tags))
    return kept, leaks


def _whole(document: TextDocument, hashes: dict[str, str]) -> str | None:
    """The benchmark of which the text, its target or one of its lines is an item."""
    texts = [document.text, *document.text.split("\n")]
    if document.target is not None:
        start, end = document.target
        data = document.text.encode()
        texts += [data[:start].decode(), data[start:end].decode()]
    return next(
        (benchmark for text in texts if len(normal_form(text)) >= MIN_ITEM_CHARACTERS and (benchmark := hashes.get(text_hash(text)))), None
    )


def _owners(matcher: Matcher, standard: Standard, documents: Sequence[TextDocument], min_coverage: float) -> list[list[str]]:
    """The benchmarks of which each document holds enough of a passage."""
    if matcher.index.is_held_out.all():
        return [[] for _ in documents]  # no benchmark is guarded, and the kernels need not be compiled
    texts = TextColumn.of(pa.array([document.text for document in documents], pa.string()))
    coverage = matcher.coverage(matcher.hits(texts), np.full(len(documents), HELD_OUT), standard)
    owners: list[set[str]] = [set() for _ in documents]
    index = matcher.index
    for place in np.flatnonzero(coverage.shares >= min_coverage):
        evaluation = index.passages["evaluation"][int(coverage.passages[place])].as_py()
        owners[coverage.rows[place]].add(index.evaluations[evaluation])
    return [sorted(found) for found in owners]
