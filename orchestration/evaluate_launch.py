"""Carrying out a plan: each evaluation ends in exactly one record, whatever happens to its job, and none keeps the next from running."""

import hashlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from assets.factory import Factory
from infra.archive.archive import Archive
from infra.archive.errors import ArchiveError, DuplicateKeyError, SealedError
from infra.artifacts.artifact import Artifact
from infra.artifacts.journal import Observation, append
from infra.catalog.catalog import Catalog
from infra.catalog.engine import CatalogError
from infra.dispatch.backend import EngineUnavailable, JobRejected
from infra.dispatch.endings import COSTS, Budget, Ending
from infra.dispatch.messages import Message
from infra.dispatch.outcome import JobCancelled, JobFailed, Outcome
from infra.storage.errors import StorageError
from ops.evaluation.records import OBSERVATION, RECORDS, Coverage, EvaluationRecord, Status, record_row, records_in, valid_record
from ops.evaluation.samples import SAMPLES, InvalidSampleError, samples_of
from orchestration.errors import UnusableCatalogError
from orchestration.evaluate_plan import Plan, Planned

Hear = Callable[[Planned, Message], None]
SAMPLES_FILE = "samples.parquet"


def minted_launch() -> str:
    """A name for a launch: when, and something random."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"


def launch(factory: Factory, plan: Plan, name: str, hear: Hear) -> Iterator[tuple[Planned, EvaluationRecord]]:
    """Run what is missing, in order; every evaluation of the plan with its record, that of a success that was there included.

    Again under the same name (after this process was killed, say), it attaches to what runs, and settles what has no record
    in this launch. Under a new name it tries again what failed.

    Raises:
        UnusableCatalogError: before anything is sent.
    """
    try:
        catalog = Catalog.open(factory.profile.storage.catalog)
    except CatalogError as error:
        raise UnusableCatalogError(f"profile {factory.profile.name}, storage.catalog: {error}") from error
    with catalog:
        for planned in plan.evaluations:
            record = _settled(factory, plan, planned, name, hear)
            _tell(factory, catalog, planned, record)
            yield planned, record


def _settled(factory: Factory, plan: Plan, planned: Planned, name: str, hear: Hear) -> EvaluationRecord:
    """The record of one evaluation: the one that is there, or a new one."""
    archive = Archive(planned.archive, writer=f"seaway eval {name}")
    if (found := _standing(archive, name)) is not None:
        return found
    started = time.monotonic()

    def record(status: Status, **fields: Any) -> EvaluationRecord:
        return _record(factory, plan, planned, name, status, time.monotonic() - started, **fields)

    try:
        outcome = factory.run(planned.job, on_message=lambda message: hear(planned, message))
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


def _standing(archive: Archive, name: str) -> EvaluationRecord | None:
    """The success, or else what this launch came to; None if something is left to do."""
    records = records_in(archive)
    best = valid_record(records)
    if best is not None and best.status == "succeeded":
        return best
    return next((record for record in records if record.launch == name), None)


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
    factory: Factory, plan: Plan, planned: Planned, name: str, status: Status, seconds: float, outcome: Outcome | None = None, **fields: Any
) -> EvaluationRecord:
    model, job, request = planned.model, planned.job, plan.request
    return EvaluationRecord(
        run_id=job.recipe,
        launch=name,
        suite=plan.suite,
        name=planned.name,
        version=request.version,
        description=request.description,
        status=status,
        model={"name": model.name, "digest": model.digest, "context_tokens": model.context_tokens, **model.source.model_dump(mode="json")},
        evaluation={key: value for key, value in job.config.items() if key not in ("task_file", "model_folder", "model")},
        job={
            "backend": factory.profile.backend.kind,
            "device": job.resources.device,
            "band": job.resources.band,
            "how": outcome.how if outcome else None,
            "attempts": outcome.attempts if outcome else None,
        },
        artifact=outcome.artifact.url if outcome else None,
        archive=planned.archive,
        seconds=seconds,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        **fields,
    )


def _tell(factory: Factory, catalog: Catalog, planned: Planned, record: EvaluationRecord) -> None:
    """Put the record into the journal of the model's digest, and with the artifact into the catalog. Repeating it is harmless."""
    entry = Observation(
        digest=planned.model.digest,
        name=OBSERVATION,
        value=record.model_dump(mode="json"),
        by=f"seaway eval {record.launch}",
        uid=hashlib.sha256(f"{record.run_id}\0{record.launch}".encode()).hexdigest()[:16],
        at=datetime.fromisoformat(record.at),
    )
    append(factory.store.root, entry)
    catalog.record_entry(entry)
    if record.artifact is not None:
        catalog.record(factory.store, planned.job.asset, planned.job.partition, record.run_id)
