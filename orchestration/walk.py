"""Materialize a part of the lineage, or all of it, wave by wave in this process."""

from collections.abc import Callable

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

from assets.factory import Factory
from assets.lineage import Stage
from assets.resolve import Node
from orchestration.errors import DemoFailedError
from orchestration.waves import Wave, waves


def materialize(
    defs: dg.Definitions, factory: Factory, instance: dg.DagsterInstance, stages: list[Stage], on_wave: Callable[[Wave, bool], None]
) -> None:
    """Materialize what is missing of some stages (upstream before downstream), in the fewest runs.

    A wave is skipped when all its nodes are published and Dagster's record of each shows the same digest.

    Raises:
        DemoFailedError: a run failed; everything published so far stays, and the next call goes on from there.
    """
    job = defs.resolve_implicit_global_asset_job_def()
    for wave in waves(stages):
        todo = not all(_recorded(factory, instance, Node(asset, wave.partition)) for asset in wave.assets)
        on_wave(wave, todo)
        if todo:
            _run(job, factory, instance, wave)


def _run(job: dg.JobDefinition, factory: Factory, instance: dg.DagsterInstance, wave: Wave) -> None:
    result = job.execute_in_process(
        asset_selection=[dg.AssetKey(asset) for asset in wave.assets],
        partition_key=wave.partition,
        instance=instance,
        raise_on_error=False,
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )
    if not result.success:
        if factory.running is not None:  # a person pressed Ctrl-C, or the terminal went away: leave nothing behind
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
    if not records:
        return False
    materialization = records[0].asset_materialization
    return materialization is not None and (materialization.tags or {}).get("dagster/data_version") == artifact.digest
