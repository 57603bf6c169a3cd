"""A quality score in [0, 1] for every document, and its bucket. The scorer is named in the config.

A scorer is a function from a batch to `Scores`; a learned model takes the same place under its own name.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import write_attributes
from ops.config import QualityConfig
from ops.hashing.columns import TextColumn
from ops.label.rules import Scores, score_texts

SCHEMA = pa.schema([("id", pa.string()), ("score", pa.float32()), ("quality_bucket", pa.int8())])
COLUMNS = ["id", "text", "media_type"]

Scorer = Callable[[QualityConfig, pa.RecordBatch], Scores]
"""Scores the rows of a batch with `COLUMNS`, each by itself."""


class QualityStats(Stats):
    """Documents by bucket (0 the lowest), the mean score, and the mean of every feature over the documents it applies to."""

    documents: int
    code_documents: int
    buckets: dict[str, int]
    mean_score: float
    feature_means: dict[str, float]


@program(version="1")
def score_quality(config: QualityConfig, normalized: Artifact, out: Writer) -> QualityStats:
    """Score every document and put it into one of five buckets.

    Args:
        normalized: one source.
        out: co-partitioned; `id`, `score: float32`, `quality_bucket: int8` (0 the lowest, 4 the highest).
    """
    scorer = SCORERS[config.scorer]
    sums = _Sums()

    def label(batch: pa.RecordBatch) -> pa.RecordBatch:
        scores = scorer(config, batch)
        buckets = bucket_of(scores.score, config.cuts)
        sums.add(scores, buckets)
        return pa.record_batch([batch["id"], pa.array(scores.score), pa.array(buckets)], schema=SCHEMA)

    write_attributes(normalized, out, label, columns=COLUMNS, schema=SCHEMA, batch_rows=config.batch_rows)
    return sums.stats()


def score_by_rules(config: QualityConfig, batch: pa.RecordBatch) -> Scores:
    """The scorer `rules/1`: see `ops.label.rules`."""
    media_types = pa.array(config.code_media_types, pa.string())
    declared = pc.is_in(batch["media_type"], value_set=media_types).to_numpy(zero_copy_only=False)
    return score_texts(TextColumn.of(batch["text"]), declared, config.max_chars)


SCORERS: Mapping[str, Scorer] = {"rules/1": score_by_rules}


def bucket_of(scores: NDArray[np.float32], cuts: tuple[float, ...]) -> NDArray[np.int8]:
    """How many cuts each score reaches."""
    return np.searchsorted(np.array(cuts, np.float32), scores, side="right").astype(np.int8)


class _Sums:
    """Running sums in millionths: whole numbers give the same means in any batching."""

    def __init__(self) -> None:
        self._documents = self._code = self._score = 0
        self._buckets = np.zeros(5, np.int64)
        self._features: dict[str, tuple[int, int]] = {}

    def add(self, scores: Scores, buckets: NDArray[np.int8]) -> None:
        self._documents += len(scores.score)
        self._code += int(scores.is_code.sum())
        self._score += _millionths(scores.score)
        self._buckets += np.bincount(buckets, minlength=5)
        for name, values in scores.features.items():
            known = values[~np.isnan(values)]
            total, count = self._features.get(name, (0, 0))
            self._features[name] = (total + _millionths(known), count + len(known))

    def stats(self) -> QualityStats:
        return QualityStats(
            documents=self._documents,
            code_documents=self._code,
            buckets={str(bucket): int(count) for bucket, count in enumerate(self._buckets)},
            mean_score=_mean(self._score, self._documents),
            feature_means={name: _mean(total, count) for name, (total, count) in sorted(self._features.items())},
        )


def _millionths(values: NDArray[np.floating]) -> int:
    return int(np.rint(values.astype(np.float64) * 1_000_000).sum())


def _mean(millionths: int, count: int) -> float:
    return round(millionths / 1_000_000 / max(1, count), 6)
