"""A quality classifier, learnt from an oracle's grades: words and word pairs, one weight each, calibrated.

A score says what grade the oracle would give, from 0 (grade 1) to 1 (grade 5), the same thing for every source and kind of
document: calibration is a rising curve fitted on documents that the weights never saw. The report is on documents that
neither saw, since a curve looks perfect where it was fitted, and by kind, since a classifier that only tells kinds apart
looks good on all of them together.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.attributes import map_attributes
from ops.dataflow.shard import Shard, Tally
from ops.dataflow.work import Output
from ops.hashing.code_points import case_folding
from ops.hashing.columns import TextColumn
from ops.hashing.terms import column_terms
from ops.label.config import QualityModelConfig, ScoreConfig
from ops.label.quality import BUCKETS, SCHEMA, bucket_of
from ops.label.quality_grades import GRADES_FILE
from ops.label.quality_oracle import excerpt_of
from ops.label.quality_report import Floats, KindStats, calibrated, isotonic, judged
from ops.sample import hash_ids
from ops.shards import read_table

SPLIT_KEY = 7  # of the hash that sets documents aside for calibration


class QualityModelStats(Stats):
    """Documents learnt from, calibrated on and reported on, and the report by kind and in all."""

    trained: int
    calibrated: int
    reported: int
    terms: int
    report: dict[str, KindStats]


class ScoreStats(Stats):
    """Documents by bucket, and the mean score."""

    documents: int
    buckets: dict[str, int]
    mean_score: float


@program(version="3")
def train_quality_model(config: QualityModelConfig, grades: Artifact, out: Writer) -> QualityModelStats:
    """Learn weights and calibration from grades.

    Args:
        grades: of `grade_documents`.
        out: `weights.npy`: float64 [2**term_bits + 1], the last one for every document. `model.json`: the calibration's
            steps, and how texts are read.

    Raises:
        ValueError: there are too few grades, or they are all the same.
    """
    table = read_table(grades, GRADES_FILE)
    target = (table["grade"].to_numpy().astype(np.float64) - 1) / 4
    draw = hash_ids(table["id"].to_pylist(), SPLIT_KEY) / 2**64
    reports = draw < config.report_share
    calibrates = ~reports & (draw < config.report_share + config.calibration_share)
    learns = ~reports & ~calibrates
    if min(reports.sum(), calibrates.sum(), learns.sum()) < config.min_documents or np.ptp(target[learns]) == 0:
        raise ValueError(
            f"{learns.sum()} grades to learn from, {calibrates.sum()} to calibrate on and {reports.sum()} to report on: too few or all "
            f"the same; grade more documents, {config.min_documents} of each are needed"
        )
    features = features_of(table["excerpt"].combine_chunks(), config.term_bits)
    weights = _fit(features[learns], target[learns], config)
    raw = expit(features @ weights[:-1] + weights[-1])
    steps = isotonic(raw[calibrates], target[calibrates])
    scores, graded = calibrated(raw, *steps)[reports], target[reports]
    buffer = io.BytesIO()
    np.save(buffer, weights)
    with out.open("weights.npy") as stream:
        stream.write(buffer.getvalue())
    out.write_json(
        "model.json",
        {"term_bits": config.term_bits, "window_chars": config.window_chars, "at": steps[0].tolist(), "score": steps[1].tolist()},
    )
    kinds = np.array(table["kind"].to_pylist())[reports]
    by_kind = {kind: judged(scores[kinds == kind], graded[kinds == kind]) for kind in sorted(set(kinds))}
    return QualityModelStats(
        trained=int(learns.sum()),
        calibrated=int(calibrates.sum()),
        reported=int(reports.sum()),
        terms=int((weights[:-1] != 0).sum()),
        report={"all": judged(scores, graded), **by_kind},
    )


def features_of(texts: pa.Array, bits: int) -> csr_array:
    """[texts, 2**bits]: roots of term counts, of length one. A row depends on its text alone."""
    column = TextColumn.of(texts)
    slots, counts, starts = column_terms(column.data, column.offsets, case_folding(), 1 << 20, bits)
    values = np.sqrt(counts)
    norms = np.sqrt(np.add.reduceat(np.append(counts, 0), starts[:-1])) if column.rows else np.zeros(0)
    sizes = np.diff(starts)
    return csr_array((values / np.repeat(np.maximum(1.0, norms), sizes), slots, starts), shape=(column.rows, 1 << bits))


def _fit(features: csr_array, target: Floats, config: QualityModelConfig) -> Floats:
    """Logistic regression on soft targets, with a penalty on the weights' squares."""

    def loss(weights: Floats) -> tuple[float, Floats]:
        logits = features @ weights[:-1] + weights[-1]
        error = (expit(logits) - target) / len(target)
        value = float((np.logaddexp(0, logits) - target * logits).mean() + 0.5 * config.penalty * (weights[:-1] ** 2).sum())
        return value, np.append(features.T @ error + config.penalty * weights[:-1], error.sum())

    found = minimize(loss, np.zeros(features.shape[1] + 1), jac=True, method="L-BFGS-B", options={"maxiter": config.max_rounds})
    return np.asarray(found.x, np.float64)


@dataclass(frozen=True)
class QualityModel:
    """The classifier of an artifact."""

    weights: Floats
    term_bits: int
    window_chars: int
    at: Floats
    score: Floats

    @classmethod
    def read(cls, artifact: Artifact) -> "QualityModel":
        with artifact.open("weights.npy") as stream:
            weights = np.load(io.BytesIO(stream.read()))
        about = artifact.read_json("model.json")
        return cls(weights, about["term_bits"], about["window_chars"], np.array(about["at"]), np.array(about["score"]))

    def __call__(self, texts: list[str]) -> NDArray[np.float32]:
        """[texts] scores in [0, 1], the same alone and in any batch."""
        excerpts = pa.array([excerpt_of(text, self.window_chars) for text in texts], pa.string())
        raw = expit(features_of(excerpts, self.term_bits) @ self.weights[:-1] + self.weights[-1])
        return calibrated(raw, self.at, self.score).astype(np.float32)


@program(version="1")
def score_by_model(config: ScoreConfig, normalized: Artifact, quality_model: Artifact, out: Writer) -> ScoreStats:
    """Score every document by a learnt classifier; the output is that of `score_quality` and takes its place.

    Args:
        out: co-partitioned; `id`, `score: float32`, `quality_bucket: int8` (0 the lowest, 4 the highest).
    """
    done = map_attributes(
        "quality_model",
        normalized,
        out,
        ScoreByModel(config, quality_model),
        columns=["id", "text"],
        output=Output(SCHEMA, batch_rows=config.batch_rows),
        execution=config.execution,
    )
    buckets = {str(bucket): done.tally[f"bucket/{bucket}"] for bucket in range(BUCKETS)}
    return ScoreStats(documents=done.rows, buckets=buckets, mean_score=round(done.tally["score"] / 1_000_000 / max(1, done.rows), 6))


@dataclass(frozen=True)
class ScoreByModel:
    """Texts -> scores and buckets."""

    config: ScoreConfig
    model: Artifact

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        model = _loaded(self.model)
        for batch in batches:
            scores = model(batch["text"].to_pylist())
            buckets = bucket_of(scores, self.config.cuts)
            tally.update({f"bucket/{bucket}": int(count) for bucket, count in enumerate(np.bincount(buckets, minlength=BUCKETS))})
            tally["score"] += int(np.rint(scores.astype(np.float64) * 1_000_000).sum())
            yield pa.RecordBatch.from_arrays([batch["id"], pa.array(scores), pa.array(buckets)], schema=SCHEMA)


@cache
def _places(url: str, digest: str) -> list[QualityModel]:
    """One place per artifact and process."""
    return []


def _loaded(artifact: Artifact) -> QualityModel:
    place = _places(artifact.url, artifact.digest)
    if not place:
        place.append(QualityModel.read(artifact))
    return place[0]
