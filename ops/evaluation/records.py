"""The record of one evaluation: what was asked of which model, how it ended, and its numbers. One for each (launch, evaluation).

It lies beside the samples it is about, in the same archive and committed with them in one step, so that there is never a number
without its samples. The first success is final: the archive is sealed behind it.
"""

from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from infra.archive.archive import Archive
from infra.archive.errors import ArchiveNotFoundError
from infra.archive.tables import Table
from ops.evaluation.statistics import Tally

FOLDER = ".evaluations"
"""Under the storage root: `{root}/.evaluations/{run_id}` is the archive of one evaluation."""

Status = Literal["succeeded", "failed", "artifact_failed", "infra_failed"]
"""failed: the evaluator said no. artifact_failed: it scored, and what it wrote can't be read. infra_failed: it never got to the end."""

RECORDS = Table(
    "records",
    pa.schema(
        [
            pa.field("launch", pa.string(), nullable=False),
            pa.field("run_id", pa.string(), nullable=False),
            pa.field("status", pa.string(), nullable=False),
            pa.field("at", pa.string(), nullable=False),
            pa.field("record", pa.string(), nullable=False),
        ]
    ),
    key=("launch",),
)
OBSERVATION = "evaluation"  # what the record is called in the journal of the model's digest, which the catalog indexes


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Coverage(_Part):
    """How many items were set out for, graded and right."""

    attempted: int
    scored: int
    correct: int

    @property
    def tally(self) -> Tally:
        return Tally(self.attempted, self.scored, self.correct)


class EvaluationRecord(_Part):
    """One evaluation in one launch.

    Attributes:
        run_id: 16 hex over everything that decides the numbers: model, task, data, engine and versions.
        model: label, digest and where it came from.
        evaluation: task file as it was read, engine, limit and the data's fingerprint.
        metrics: by filter and metric, the mean over the graded items; empty unless it succeeded.
        headline: (filter, metric) that `coverage.correct` counts.
        reason: one sentence about a failure.
        log_tail: the last lines of the program's traceback.
        job: device, band, engine of the cluster, attempts.
    """

    schema_version: Literal[1] = 1
    run_id: str
    launch: str
    suite: str
    name: str
    version: str
    description: str
    status: Status
    model: dict[str, Any]
    evaluation: dict[str, Any]
    metrics: dict[str, dict[str, float]] = {}
    headline: tuple[str, str] | None = None
    coverage: Coverage | None = None
    reason: str | None = None
    log_tail: tuple[str, ...] = ()
    job: dict[str, Any] = {}
    artifact: str | None = None
    archive: str
    seconds: float
    at: str


def archive_of(root: str, run_id: str) -> str:
    """Where the samples and the records of an evaluation lie."""
    return f"{root if root.endswith('://') else root.rstrip('/')}/{FOLDER}/{run_id}"


def records_in(archive: Archive) -> list[EvaluationRecord]:
    """Every record of an evaluation, oldest first; none if there is no archive yet."""
    try:
        snapshot = archive.snapshot()
    except ArchiveNotFoundError:
        return []
    if RECORDS.name not in snapshot.tables:
        return []
    return [EvaluationRecord.model_validate_json(text) for text in snapshot.read(RECORDS.name, ["record"])["record"].to_pylist()]


def valid_record(records: list[EvaluationRecord]) -> EvaluationRecord | None:
    """What an evaluation came to: its first success, else its newest failure. A failure never replaces a success."""
    successes = [record for record in records if record.status == "succeeded"]
    return successes[0] if successes else records[-1] if records else None


def record_row(record: EvaluationRecord) -> pa.RecordBatch:
    """A record as a row of `RECORDS`."""
    values = [[record.launch], [record.run_id], [record.status], [record.at], [record.model_dump_json()]]
    return pa.RecordBatch.from_arrays([pa.array(value, pa.string()) for value in values], schema=RECORDS.schema)
