"""A throw-away code location: one asset of plain Dagster and one of ours, with as many partitions as the benchmark asks for."""

import os
from pathlib import Path

import dagster as dg

from assets.factory import Factory
from assets.profile import Profile, load_profile
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact
from ops.hello import HelloConfig

ROOT = Path(os.environ["SEAWAY_BENCH_ROOT"])
PARTITIONS = dg.StaticPartitionsDefinition([f"p{number:05d}" for number in range(int(os.environ.get("SEAWAY_BENCH_PARTITIONS", "100")))])


def _profile() -> Profile:
    demo = load_profile("demo")
    moved = {"root": f"{ROOT}/artifacts", "state": f"{ROOT}/jobs", "dagster_home": f"{ROOT}/dagster"}
    return demo.model_copy(update={"storage": demo.storage.model_copy(update=moved)})


FACTORY = Factory(_profile())


@dg.asset(partitions_def=PARTITIONS, backfill_policy=dg.BackfillPolicy.multi_run(1))
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
