"""A throw-away code location: one asset of plain Dagster and one of ours, with as many partitions as the benchmark asks for."""

import os

import dagster as dg

from assets.factory import Factory
from assets.profile import active_profile
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact
from ops.hello import HelloConfig

PARTITIONS = dg.StaticPartitionsDefinition([f"p{number:05d}" for number in range(int(os.environ["SEAWAY_BENCH_PARTITIONS"]))])
FACTORY = Factory(active_profile())


@dg.asset(partitions_def=PARTITIONS)
def plain() -> dg.MaterializeResult[None]:
    """What Dagster costs by itself."""
    return dg.MaterializeResult(metadata={"files": 1})


@stage(
    program="ops.hello:hello",
    partitions=PARTITIONS,
    config=lambda profile, partition: HelloConfig(greeting=str(partition)),
    group="bench",
    kinds=set(),
)
def ours(artifact: Artifact) -> Report:
    """The same through recipe, store and dispatcher."""
    return Report(metadata={"files": len(artifact.names)})


defs = dg.Definitions(assets=[plain, ours], resources={"factory": FACTORY}, executor=dg.in_process_executor)
