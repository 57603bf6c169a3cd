"""A quality score in [0, 1] for every document, and its bucket. The scorer is named in the config.

A scorer is a function from a batch to `Scores`; a learned model takes the same place under its own name.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import map_attributes
from ops.dataflow.shard import Shard, Tally
from ops.dataflow.work import Output
from ops.hashing.columns import TextColumn
from ops.label.config import QualityConfig
from ops.label.rules import Scores, score_texts

SCHEMA = pa.schema([("id", pa.string()), ("score", pa.float32()), ("quality_bucket", pa.int8())])
COLUMNS = ["id", "text", "media_type"]
BUCKETS = 5
FEATURE, APPLIES = "feature/", "applies/"  # what is tallied of each feature: its sum, and the documents it applies to

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
    scored = map_attributes(
        "quality",
        normalized,
        out,
        ScoreDocuments(config),
        columns=COLUMNS,
        output=Output(SCHEMA, batch_rows=config.batch_rows),
        execution=config.execution,
    )
    return stats_of(scored.tally, scored.rows)


@dataclass(frozen=True)
class ScoreDocuments:
    """Record batches with `COLUMNS` -> `SCHEMA`."""

    config: QualityConfig

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        scorer = SCORERS[self.config.scorer]
        for batch in batches:
            scores = scorer(self.config, batch)
            buckets = bucket_of(scores.score, self.config.cuts)
            count(scores, buckets, tally)
            yield pa.record_batch([batch["id"], pa.array(scores.score), pa.array(buckets)], schema=SCHEMA)


def score_by_rules(config: QualityConfig, batch: pa.RecordBatch) -> Scores:
    """The scorer `rules/1`: see `ops.label.rules`."""
    media_types = pa.array(config.code_media_types, pa.string())
    declared = pc.is_in(batch["media_type"], value_set=media_types).to_numpy(zero_copy_only=False)
    return score_texts(TextColumn.of(batch["text"]), declared, config.max_chars)


SCORERS: Mapping[str, Scorer] = {"rules/1": score_by_rules}


def bucket_of(scores: NDArray[np.float32], cuts: tuple[float, ...]) -> NDArray[np.int8]:
    """How many cuts each score reaches."""
    return np.searchsorted(np.array(cuts, np.float32), scores, side="right").astype(np.int8)


def count(scores: Scores, buckets: NDArray[np.int8], tally: Tally) -> None:
    """Add a batch to the tally; scores and features in millionths, whose sums no batching changes."""
    tally["code"] += int(scores.is_code.sum())
    tally["score"] += _millionths(scores.score)
    tally.update({f"bucket/{bucket}": int(documents) for bucket, documents in enumerate(np.bincount(buckets, minlength=BUCKETS))})
    for name, values in scores.features.items():
        known = values[~np.isnan(values)]
        tally.update({f"{FEATURE}{name}": _millionths(known), f"{APPLIES}{name}": len(known)})


def stats_of(tally: Tally, documents: int) -> QualityStats:
    features = sorted(key.removeprefix(FEATURE) for key in tally if key.startswith(FEATURE))
    return QualityStats(
        documents=documents,
        code_documents=tally["code"],
        buckets={str(bucket): tally[f"bucket/{bucket}"] for bucket in range(BUCKETS)},
        mean_score=_mean(tally["score"], documents),
        feature_means={name: _mean(tally[f"{FEATURE}{name}"], tally[f"{APPLIES}{name}"]) for name in features},
    )


def _millionths(values: NDArray[np.floating]) -> int:
    return int(np.rint(values.astype(np.float64) * 1_000_000).sum())


def _mean(millionths: int, count: int) -> float:
    return round(millionths / 1_000_000 / max(1, count), 6)
