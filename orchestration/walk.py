"""Materialize a part of the lineage, or all of it, wave by wave in this process."""

from collections.abc import Callable

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster_shared.error import SerializableErrorInfo

from assets.factory import Factory
from assets.lineage import Stage
from assets.process import sign
from assets.resolve import Node
from orchestration.errors import DemoFailedError
from orchestration.lost_runs import fail_lost_runs
from orchestration.waves import Wave, waves

ORIGIN = RemoteRepositoryOrigin(
    ManagedGrpcPythonEnvCodeLocationOrigin(LoadableTargetOrigin(module_name="orchestration.definitions"), location_name="seaway"),
    repository_name="__repository__",
)
"""Where the UI finds the lineage (`workspace.yaml`). A run that names it can be executed again there; one made by
`execute_in_process` names none."""

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def materialize(
    defs: dg.Definitions, factory: Factory, instance: dg.DagsterInstance, stages: list[Stage], on_wave: Callable[[Wave, bool], None]
) -> None:
    """Materialize what is missing of some stages (upstream before downstream), in the fewest runs.

    A wave is skipped when all its nodes are published, Dagster's record of each shows the same digest, and the run that
    recorded it succeeded: a blocking check that failed goes on failing, however often one starts again.

    Raises:
        DemoFailedError: a run failed; everything published so far stays, and the next call goes on from there.
    """
    fail_lost_runs(instance)
    job = defs.resolve_implicit_global_asset_job_def()
    for wave in waves(stages):
        todo = not all(_recorded(factory, instance, Node(asset, wave.partition)) for asset in wave.assets)
        on_wave(wave, todo)
        if todo:
            _run(job, factory, instance, wave)


def _run(job: dg.JobDefinition, factory: Factory, instance: dg.DagsterInstance, wave: Wave) -> None:
    """Create the run and execute it here and now, without the daemon's queue."""
    keys = {dg.AssetKey(asset) for asset in wave.assets}
    tags = job.get_tags_for_partition_key(wave.partition, selected_asset_keys=keys) if wave.partition else {}
    run = instance.create_run_for_job(
        job,
        asset_selection=keys,
        tags={**job.run_tags, **tags},
        run_config=QUIET,
        remote_job_origin=ORIGIN.get_job_origin(job.name),
    )
    sign(instance, run.run_id)
    result = execute_run(InMemoryJob(job), run, instance)
    if not result.success:
        if factory.running is not None:  # a person pressed Ctrl-C: leave nothing behind
            title = factory.running.title
            factory.cancel(factory.running)
            raise DemoFailedError(f"interrupted; {title} was cancelled; run the same command again to go on")
        failures = [event.step_failure_data.error for event in result.get_step_failure_events()]
        causes = [_root_cause(error) for error in failures if error] or ["see the run's log in the UI"]
        raise DemoFailedError(f"run {result.run_id[:8]} failed: " + "; ".join(dict.fromkeys(causes)))


def _root_cause(error: SerializableErrorInfo) -> str:
    """The message that the innermost exception was raised with; Dagster wraps each in one of its own."""
    while error.cause is not None:
        error = error.cause
    kind, _, message = error.message.strip().partition(": ")
    return message if kind.endswith("Failure") else error.message.strip()


def _recorded(factory: Factory, instance: dg.DagsterInstance, node: Node) -> bool:
    artifact = factory.resolve(node.asset, node.partition).artifact
    if artifact is None:
        return False
    partitions = [node.partition] if node.partition else None
    filters = dg.AssetRecordsFilter(asset_key=dg.AssetKey(node.asset), asset_partitions=partitions)
    records = instance.fetch_materializations(filters, limit=1).records
    materialization = records[0].asset_materialization if records else None
    if materialization is None or (materialization.tags or {}).get("dagster/data_version") != artifact.digest:
        return False
    run = instance.get_run_by_id(records[0].run_id)
    return run is None or run.is_success  # an old run may have been removed; its artifact is there
