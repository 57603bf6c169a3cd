"""How a graded job ends: in exactly one record beside its samples, in the archive of its recipe, the catalog and the model's journal.

`seaway eval` and the lineage's own asset `task_scores` both end here, so the board shows them side by side.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.archive.archive import Archive
from infra.archive.errors import ArchiveError, DuplicateKeyError, SealedError
from infra.artifacts.artifact import Artifact
from infra.artifacts.journal import Observation, append
from infra.artifacts.store import ArtifactStore
from infra.catalog.catalog import Catalog
from infra.dispatch.backend import EngineUnavailable, JobRejected
from infra.dispatch.endings import COSTS, Budget, Ending
from infra.dispatch.job import Job
from infra.dispatch.outcome import JobCancelled, JobFailed, Outcome
from infra.storage.errors import StorageError
from ops.evaluation.records import (
    OBSERVATION,
    RECORDS,
    Coverage,
    EvaluationRecord,
    Status,
    archive_of,
    record_row,
    records_in,
    valid_record,
)
from ops.evaluation.samples import SAMPLES, InvalidSampleError, samples_of

SAMPLES_FILE = "samples.parquet"


@dataclass(frozen=True)
class Asked:
    """What a record says before anything has run.

    Attributes:
        launch: who asks; a record's key within its archive.
        by: the launcher, as journals and manifests name it.
        model: its name, its digest, and where it came from.
        evaluation: what decides the numbers: task, data, engine.
    """

    job: Job
    launch: str
    by: str
    suite: str
    name: str
    model: dict[str, Any]
    evaluation: dict[str, Any]
    version: str = ""
    description: str = ""


def settle(root: str, backend: str, asked: Asked, run: Callable[[], Outcome]) -> EvaluationRecord:
    """The record of one evaluation: the one that is there, or a new one of what `run` comes to.

    Args:
        root: of the storage that keeps evaluations.
        backend: the kind that the job ran on.
        run: builds the job's artifact; called only if nothing is there. Its failures end in the record.
    """
    archive = Archive(archive_of(root, asked.job.recipe), writer=f"{asked.by} {asked.launch}")
    if (found := _standing(archive, asked.launch)) is not None:
        return found
    started = time.monotonic()

    def record(status: Status, **fields: Any) -> EvaluationRecord:
        return _record(root, backend, asked, status, time.monotonic() - started, **fields)

    try:
        outcome = run()
    except JobFailed as failure:
        status: Status = "infra_failed" if is_infrastructure(failure.ending) else "failed"
        return _kept(archive, record(status, reason=str(failure), log_tail=tuple(failure.tail)), None)
    except (JobCancelled, JobRejected, EngineUnavailable, StorageError) as error:
        return _kept(archive, record("infra_failed", reason=str(error)), None)
    try:
        samples, result = _read(outcome.artifact)
    except (OSError, ValueError, KeyError, TypeError, ArchiveError) as error:
        reason = f"{outcome.artifact.url}: what was scored can't be read ({error}); remove it and launch again"
        return _kept(archive, record("artifact_failed", reason=reason, outcome=outcome), None)
    return _kept(archive, record("succeeded", outcome=outcome, **result), samples)


def is_infrastructure(ending: Ending) -> bool:
    """Whether a job that ended so says nothing about the evaluation: its machine was lost, or it never got one."""
    return COSTS[ending].budget is Budget.INFRASTRUCTURE or ending in (Ending.NEVER_STARTED, Ending.UNSCHEDULABLE, Ending.STORAGE_REFUSED)


def tell(store: ArtifactStore, catalog: Catalog, asked: Asked, record: EvaluationRecord) -> None:
    """Put the record into the journal of the model's digest, and with the artifact into the catalog. Repeating it is harmless."""
    entry = Observation(
        digest=asked.model["digest"],
        name=OBSERVATION,
        value=record.model_dump(mode="json"),
        by=f"{asked.by} {record.launch}",
        uid=hashlib.sha256(f"{record.run_id}\0{record.launch}".encode()).hexdigest()[:16],
        at=datetime.fromisoformat(record.at),
    )
    append(store.root, entry)
    catalog.record_entry(entry)
    if record.artifact is not None:
        catalog.record(store, asked.job.asset, asked.job.partition, record.run_id)


def _standing(archive: Archive, launch: str) -> EvaluationRecord | None:
    """The success, or else what this launch came to; None if something is left to do."""
    records = records_in(archive)
    best = valid_record(records)
    if best is not None and best.status == "succeeded":
        return best
    return next((record for record in records if record.launch == launch), None)


def _kept(archive: Archive, record: EvaluationRecord, samples: pa.Table | None) -> EvaluationRecord:
    """Commit a record, a success with its samples and for good; or give the one that somebody else committed first."""
    try:
        with archive.transaction() as transaction:
            if samples is not None:
                transaction.append(SAMPLES, samples)
            transaction.append(RECORDS, record_row(record))
        if samples is not None:
            archive.seal()
    except (DuplicateKeyError, SealedError):
        found = _standing(archive, record.launch)
        if found is None:
            raise
        return found
    return record


def _read(artifact: Artifact) -> tuple[pa.Table, dict[str, Any]]:
    """Samples, checked against their contract, and what they come to.

    Raises:
        OSError, ValueError, KeyError, TypeError: the artifact isn't what it should be.
    """
    with artifact.open(SAMPLES_FILE) as stream:
        samples = pq.read_table(stream)
    if missing := [name for name in SAMPLES.schema.names if name not in samples.schema.names]:
        raise InvalidSampleError(f"{SAMPLES_FILE} has no column {missing[0]!r}")
    samples = samples.cast(SAMPLES.schema)
    for batch in samples.to_batches():
        samples_of(batch)
    stats = artifact.stats
    coverage = Coverage(attempted=stats["attempted"], scored=stats["scored"], correct=stats["correct"])
    return samples, {"coverage": coverage, "metrics": stats["metrics"], "headline": (stats["headline_filter"], stats["headline_metric"])}


def _record(
    root: str, backend: str, asked: Asked, status: Status, seconds: float, outcome: Outcome | None = None, **fields: Any
) -> EvaluationRecord:
    job = asked.job
    return EvaluationRecord(
        run_id=job.recipe,
        launch=asked.launch,
        suite=asked.suite,
        name=asked.name,
        version=asked.version,
        description=asked.description,
        status=status,
        model=asked.model,
        evaluation=asked.evaluation,
        job={
            "backend": backend,
            "device": job.resources.device,
            "band": job.resources.band,
            "how": outcome.how if outcome else None,
            "attempts": outcome.attempts if outcome else None,
        },
        artifact=outcome.artifact.url if outcome else None,
        archive=archive_of(root, job.recipe),
        seconds=seconds,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        **fields,
    )
