"""From evaluation items and held-out documents to passages and their features."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from ops.decontaminate.commonplace import is_commonplace
from ops.decontaminate.config import EvaluationNgramsConfig, EvaluationSet
from ops.decontaminate.evaluations import EvaluationError, files_of, items_of, observe, texts_of, without_labels
from ops.hashing.columns import TextColumn
from ops.hashing.functions import column_functions
from ops.hashing.passage_words import word_codes
from ops.hashing.passages import column_passages
from ops.shards import read_batches, shard_names

HELD_OUT_FOLDER = "held_out/"
KINDS = ("long", "short", "function")
LONG, SHORT, FUNCTION = range(3)
_BLANK_LINES = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class Passages:
    """What an evaluation is known by. The features of passage p are `features[starts[p]:starts[p + 1]]`, none twice in order.

    items, fields: [passages] where each comes from. kinds: place in `KINDS`. words: of its text (tokens of a function).
    holders: items that have the very same text. heads: of short ones, else 0.
    """

    items: pa.StringArray
    fields: pa.StringArray
    kinds: NDArray[np.int8]
    words: NDArray[np.int64]
    holders: NDArray[np.int64]
    heads: NDArray[np.uint64]
    features: NDArray[np.uint64]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, texts: "Texts", width: int, least: int) -> "Passages":
        """The passages of texts."""
        column = TextColumn.of(texts.texts)
        rows, words, heads, features, starts = column_passages(column.data, column.offsets, word_codes(), width, least)
        kinds = np.where(words < width, SHORT, LONG).astype(np.int8)
        return cls(texts.items.take(rows), texts.fields.take(rows), kinds, words, texts.holders[rows], heads, features, starts)

    @classmethod
    def functions(cls, texts: "Texts", least: int) -> "Passages":
        """The functions of source texts."""
        column = TextColumn.of(texts.texts)
        rows, features, begins, ends = column_functions(column.data, column.offsets, least)
        kinds = np.full(len(rows), FUNCTION, np.int8)
        heads, starts = np.zeros(len(rows), np.uint64), np.arange(len(rows) + 1)
        return cls(texts.items.take(rows), texts.fields.take(rows), kinds, ends - begins, texts.holders[rows], heads, features, starts)


@dataclass(frozen=True)
class Texts:
    """[texts] distinct texts, the first item and field that has each, and how many items do."""

    texts: pa.StringArray
    items: pa.StringArray
    fields: pa.StringArray
    holders: NDArray[np.int64]


@dataclass
class DistinctTexts:
    """Collects texts, each once."""

    _found: dict[str, tuple[str, str, int]] = field(default_factory=dict)

    def add(self, text: str, item: str, name: str) -> None:
        first, kept, holders = self._found.get(text, (item, name, 0))
        self._found[text] = (first, kept, holders + 1)

    def column(self) -> Texts:
        items, names, holders = zip(*self._found.values(), strict=True) if self._found else ((), (), ())
        return Texts(
            pa.array(list(self._found), pa.string()),
            pa.array(items, pa.string()),
            pa.array(names, pa.string()),
            np.array(holders, np.int64),
        )


@dataclass
class Gathered:
    """One evaluation."""

    name: str
    items: int = 0
    texts: int = 0
    commonplace: int = 0
    parts: list[Passages] = field(default_factory=list)

    @property
    def passages(self) -> int:
        return sum(len(part.kinds) for part in self.parts)


def gather_sets(config: EvaluationNgramsConfig, out: Writer) -> tuple[list[Gathered], list[str]]:
    """The passages of the configured sets, and the names of the optional sets without files.

    Raises:
        EvaluationError: names every required set that is missing, changed or yields nothing.
    """
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
        if evaluation.required and not found.passages:
            names = ", ".join((*evaluation.fields, *evaluation.answers, *evaluation.code))
            broken.append(f"{evaluation.name}: the fields {names} give no features in {found.items} items")
        gathered.append(found)
    if broken:
        raise EvaluationError(
            f"evaluations that must be guarded can't be: {'; '.join(broken)}. "
            "Provide them, plan again, or set required: false to train unguarded"
        )
    return gathered, missing


def gather_set(evaluation: EvaluationSet, config: EvaluationNgramsConfig, out: Writer) -> Gathered:
    """Read one set: questions of any length that say something, answers and code where they are long, and the functions of its code."""
    gathered = Gathered(evaluation.name)
    questions, answers, sources = DistinctTexts(), DistinctTexts(), DistinctTexts()
    for path in files_of(evaluation):
        file = path.relative_to(evaluation.root).as_posix()
        for number, item in enumerate(items_of(path), 1):
            gathered.items += 1
            where = f"{file}:{number}"
            for name in evaluation.fields:
                for text in texts_of(item, name):
                    for variant in dict.fromkeys((text, without_labels(text))):
                        if is_commonplace(variant, config.ngram_words):
                            gathered.commonplace += 1
                        else:
                            questions.add(variant, where, name)
            for name in evaluation.answers:
                for text in texts_of(item, name):
                    answers.add(text, where, name)
            parts = [text for name in evaluation.code for text in texts_of(item, name)]
            for name in evaluation.code:
                for text in texts_of(item, name):
                    answers.add(_BLANK_LINES.sub("\n", text), where, name)  # a paragraph of code is nobody's idea; the whole is
            if parts:
                sources.add("".join(parts), where, "+".join(evaluation.code))
            out.progress(gathered.items, None, "items")
    columns = questions.column(), answers.column(), sources.column()
    gathered.texts = len(columns[0].texts) + len(columns[1].texts)
    gathered.parts = [
        Passages.of(columns[0], config.ngram_words, config.least_words),
        Passages.of(columns[1], config.ngram_words, config.ngram_words),
    ]
    if evaluation.code:
        gathered.parts.append(Passages.functions(columns[2], config.function_tokens))
    return gathered


def gather_held_out(source: str, normalized: Artifact, config: EvaluationNgramsConfig, out: Writer) -> Gathered:
    """The long paragraphs of a source's held-out documents: a short line is not a leak of a document."""
    gathered = Gathered(f"{HELD_OUT_FOLDER}{source}")
    for ids, texts in _held_out_rows(normalized, config.batch_rows):
        fields = pa.array(["text"] * len(texts), pa.string())
        column = Texts(texts, ids, fields, np.ones(len(texts), np.int64))
        gathered.parts.append(Passages.of(column, config.ngram_words, config.ngram_words))
        gathered.items += len(texts)
        gathered.texts += len(texts)
        out.progress(gathered.items, None, "held-out documents")
    return gathered


def _held_out_rows(normalized: Artifact, batch_rows: int) -> Iterator[tuple[pa.StringArray, pa.StringArray]]:
    for name in shard_names(normalized):
        for batch in read_batches(normalized, name, ["id", "text", "is_held_out"], batch_rows):
            held_out = batch.filter(batch["is_held_out"])
            if held_out.num_rows:
                yield held_out["id"], held_out["text"]
