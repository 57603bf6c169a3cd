"""`@stage`: a Dagster asset whose work runs as a dispatched job and whose result is an artifact.

The decorated function says what to show a person: it gets the published artifact and returns a `Report`.
Its name is the asset key, its docstring the description in the UI. Everything else - inputs to recipe,
reuse, lease, submit or attach, poll, confirm - is the same for every asset and happens here once.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from inspect import cleandoc
from typing import Any

import dagster as dg

from assets.batch import record_each
from assets.factory import Factory, how_to_materialize
from assets.lineage import STAGES, ConfigOf, Edge, Stage
from assets.partitions import PROFILE
from assets.process import sign
from assets.profile import Pool
from assets.resolve import Resolved
from assets.wanted import remember_who_wants
from infra.artifacts.artifact import Artifact
from infra.dispatch.backend import EngineUnavailable, JobRejected
from infra.dispatch.job import Job
from infra.dispatch.messages import Message
from infra.dispatch.outcome import JobCancelled, JobFailed, Outcome
from infra.storage.errors import StorageError
from ops.crawl.listing import SourceError
from ops.decontaminate.evaluations import EvaluationError


@dataclass(frozen=True)
class Report:
    """What a person asks of an artifact: metadata for the UI, and the outcome of each declared check.

    A failed check of `checks` stops everything downstream; one of `warnings` only shows.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, bool] = field(default_factory=dict)
    warnings: Mapping[str, bool] = field(default_factory=dict)


Recorder = Callable[[Factory, Job, str, Outcome | Exception], None]
"""Keeps what a job came to, an artifact or a failure, beyond what Dagster keeps: (factory, job, Dagster's run, its end)."""

ON_DEMAND_TAG = "seaway/on_demand"
"""An asset with this tag is built only when somebody asks for it."""

SNAPSHOT_TAG = "seaway/snapshot"
"""A run with this tag asks for its live source anew, at the instant that the tag gives (`2026-11-30T03:00:00Z`)."""

DATA_CHANGED = (
    dg.AutomationCondition.any_deps_match(dg.AutomationCondition.data_version_changed())
    .since(dg.AutomationCondition.newly_requested() | dg.AutomationCondition.initial_evaluation())
    .with_label("an input's bytes changed since this was last requested")
    & ~dg.AutomationCondition.any_deps_missing()
    & ~dg.AutomationCondition.any_deps_in_progress()
    & ~dg.AutomationCondition.any_deps_match(dg.AutomationCondition.will_be_requested())
    & ~dg.AutomationCondition.in_progress()
    & dg.AutomationCondition.all_deps_blocking_checks_passed()
)
"""Rebuild when an input's bytes changed. `eager()` would fire on every re-materialization, equal bytes or not.

A change is remembered until it led to a request: it is true at one tick only, and at that tick this asset or another
input may be on its way. Waiting for inputs that are on their way is not thrift but need: until they are there, the
recipe is unknown.
"""


def program_version(path: str) -> str:
    """The version of a program as locked in `programs.lock.json`, so that the lineage loads without importing programs."""
    locked = json.loads(files("assets").joinpath("programs.lock.json").read_text())
    if path not in locked:
        raise KeyError(f"{path} is not in assets/programs.lock.json; run `python -m assets.lock --write`")
    return str(locked[path]["version"])


def stage(
    *,
    program: str,
    inputs: Mapping[str, Edge] | None = None,
    after: tuple[str, ...] = (),
    partitions: dg.StaticPartitionsDefinition | None = None,
    config: ConfigOf | None = None,
    group: str,
    kinds: set[str],
    owner: str = "team:data",
    checks: Mapping[str, str] | None = None,
    automated: bool = True,
    on_demand: bool = False,
    pool: Pool = "host",
    record: Recorder | None = None,
) -> Callable[[Callable[[Artifact], Report]], dg.AssetsDefinition]:
    """Declare an asset built by `program`.

    Args:
        inputs: program parameter -> where its artifact comes from.
        after: assets that must be published before, without being inputs: they never enter the recipe.
        config: the program's config for (profile, partition); by default the profile's section named like the asset.
        checks: name -> what it asserts, for every check and warning of the report.
        automated: rebuild when an input's data version changes. Off for what runs on chips.
        record: called with the end of every job, before Dagster hears of it.
        on_demand: built only when somebody asks, by the job `deepen` or by name; never by automation.
    """

    def declare(report: Callable[[Artifact], Report]) -> dg.AssetsDefinition:
        key = report.__name__
        declared = Stage(
            key=key,
            program=program,
            version=program_version(program),
            inputs=dict(inputs or {}),
            after=after,
            partitions=tuple(partitions.get_partition_keys()) if partitions else (),
            config=config or (lambda profile, _: profile.program_config(key)),
            pool=pool,
            on_demand=on_demand,
        )
        STAGES[key] = declared

        @dg.asset(
            name=key,
            deps=list(declared.upstream),
            partitions_def=partitions,
            description=cleandoc(report.__doc__ or ""),
            group_name=group,
            kinds=kinds,
            owners=[owner],
            code_version=declared.version,
            pool=pool,
            backfill_policy=dg.BackfillPolicy.multi_run(PROFILE.concurrency.partitions_of(pool)) if partitions else None,
            automation_condition=DATA_CHANGED if automated and not on_demand and declared.upstream else None,
            check_specs=[dg.AssetCheckSpec(name, asset=key, blocking=True, description=what) for name, what in (checks or {}).items()],
            tags={"program": program.replace(":", "."), **({ON_DEMAND_TAG: "true"} if on_demand else {})},
        )
        def materialize(context: dg.AssetExecutionContext, factory: dg.ResourceParam[Factory]) -> Iterator[dg.MaterializeResult[Any]]:
            def built(partition: str | None) -> dg.MaterializeResult[Any]:
                outcome = dispatch(context, factory, declared, partition, record)
                return result_of(report(outcome.artifact), outcome)

            partitions = partitions_of(context, declared)
            if len(partitions) == 1:
                yield built(partitions[0])
                return
            results, failures = dict[str, dg.MaterializeResult[Any]](), dict[str, dg.Failure]()
            for partition in map(str, partitions):
                try:
                    results[partition] = built(partition)
                except dg.Failure as failure:
                    failures[partition] = failure
            yield from record_each(context, declared.version, results, failures)

        return materialize

    return declare


def partitions_of(context: dg.AssetExecutionContext, declared: Stage) -> Sequence[str | None]:
    """The partitions this asset is built for: just None if it has none, though the run, which others share, may have one."""
    if not declared.partitions:
        return [None]
    # A backfill asks for ranges, of as many keys as its policy allows; `context.partition_key` knows none of them.
    chosen: Sequence[str] = context.partition_keys if context.has_partition_key or context.has_partition_key_range else ()
    if not chosen:
        keys = ", ".join(sorted(declared.partitions))
        raise dg.Failure(f"{declared.key} is built by partition; add --partition with one of {keys}", allow_retries=False)
    return [str(key) for key in chosen]


def dispatch(
    context: dg.AssetExecutionContext, factory: Factory, declared: Stage, partition: str | None, record: Recorder | None = None
) -> Outcome:
    """Find the artifact or have it built, with the job's log in Dagster's.

    An interrupt doesn't say why. The job is cancelled, and the cancel confirmed, only if a person asked for
    it (the run is CANCELING); otherwise the job runs on and the next run attaches to it.
    """
    if context.run.run_id not in factory.signed:
        factory.signed.add(context.run.run_id)
        sign(context.instance, context.run.run_id)
    resolved = _resolved(context, factory, declared, partition)
    job = factory.job(resolved)

    def ended(end: Outcome | Exception) -> None:
        if record is not None:
            record(factory, job, context.run.run_id, end)

    if resolved.artifact is not None:
        reused = Outcome(resolved.artifact, "reused", 0, 0.0)
        ended(reused)
        return reused
    remember_who_wants(context.instance, job.address, context.run.run_id)

    def log(message: Message) -> None:
        context.log.log(message.level, message.text)

    try:
        outcome = factory.run(job, on_message=log)
    except JobFailed as failure:
        ended(failure)
        told = {"log": dg.MetadataValue.path(failure.log), "ending": failure.ending.value, "traceback": "\n".join(failure.tail) or "none"}
        raise dg.Failure(str(failure), metadata=told, allow_retries=False) from None
    except (JobCancelled, StorageError) as error:
        ended(error)
        raise dg.Failure(str(error), allow_retries=False) from None
    except (JobRejected, EngineUnavailable) as error:
        ended(error)
        raise
    except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt):
        if _a_person_asked(context):
            factory.cancel(job)
        else:
            context.log.warning(f"interrupted, and nobody asked for an end: {job.title} runs on, and the next run attaches to it")
        raise
    ended(outcome)
    context.log.info(f"{resolved.node}: {outcome.how}, {outcome.artifact.digest[:16]} at {outcome.artifact.url}")
    return outcome


def _resolved(context: dg.AssetExecutionContext, factory: Factory, declared: Stage, partition: str | None) -> Resolved:
    """What the profile asks of the node, all of whose inputs are published."""
    try:
        if partition in factory.profile.live_sources and (instant := context.run.tags.get(SNAPSHOT_TAG)):
            factory.take_snapshot(partition, instant)
        resolved = factory.resolve(declared.key, partition)
    except (SourceError, EvaluationError, StorageError) as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    if resolved.waiting_for:
        missing = list(dict.fromkeys(resolved.waiting_for))
        named = f"{', '.join(map(str, missing))} {'is' if len(missing) == 1 else 'are'} not published for this profile"
        raise dg.Failure(f"{resolved.node} can't be built: {named}; {how_to_materialize(missing)}", allow_retries=False)
    return resolved


def _a_person_asked(context: dg.AssetExecutionContext) -> bool:
    """Whether the run is being terminated: CANCELING, or CANCELED already if somebody forced it."""
    run = context.instance.get_run_by_id(context.run.run_id)
    return run is not None and run.status in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)


def speed_of(stats: Mapping[str, Any], observations: Mapping[str, float]) -> dict[str, float]:
    """Seconds, and documents a second, of the attempt that built an artifact; nothing where none was just built."""
    seconds = observations.get("wall_s")
    if not seconds:
        return {}
    worked = next((stats[name] for name in ("documents", "records", "rows") if isinstance(stats.get(name), int)), None)
    return {"seconds": round(seconds, 1)} | ({} if worked is None else {"documents_per_s": round(worked / seconds, 1)})


def result_of(report: Report, outcome: Outcome) -> dg.MaterializeResult[Any]:
    """What Dagster records: the report, beside the artifact's identity and how it was come by."""
    artifact = outcome.artifact
    identity: dict[str, Any] = {
        "artifact": dg.MetadataValue.path(artifact.url),
        "digest": artifact.digest,
        "recipe": artifact.manifest.recipe,
        "how": outcome.how,
        "artifact_files": len(artifact.names),
        "artifact_bytes": sum(entry.size for entry in artifact.manifest.files),
        **speed_of(artifact.stats, outcome.observations),
    }
    return dg.MaterializeResult(
        data_version=dg.DataVersion(artifact.digest),
        metadata={**report.metadata, **identity},
        check_results=[
            *(dg.AssetCheckResult(check_name=name, passed=passed) for name, passed in report.checks.items()),
            *(
                dg.AssetCheckResult(check_name=name, passed=passed, severity=dg.AssetCheckSeverity.WARN)
                for name, passed in report.warnings.items()
            ),
        ],
    )
