"""A code location for journeys of the seam: real stages, whose job waits at a gate for as long as the test wants.

`slow` waits in the folder `$GATE`; `after` is downstream of it; `parts[a-d]` wait in `$GATE/parts`. Everything else is the factory's.
"""

import os
from pathlib import Path

import dagster as dg

import assets.stage
from assets.factory import Factory
from assets.lineage import each, same
from assets.profile import active_profile
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact
from infra.artifacts.program import load_program
from infra.dispatch.job import Timeouts
from orchestration.orphans import orphans
from tests.infra.dispatch.programs import CountConfig, JoinConfig

GATE = os.environ["GATE"]
PROGRAMS = "tests.infra.dispatch.programs"
PARTS = dg.StaticPartitionsDefinition(["a", "b", "c", "d"])

assets.stage.program_version = lambda path: load_program(path).version  # the lock knows no program of a test


@stage(program=f"{PROGRAMS}:count", config=lambda *_: CountConfig(numbers=8, gate=GATE), group="seam", kinds={"text"})
def slow(artifact: Artifact) -> Report:
    """Waits at its gate."""
    return Report()


@stage(
    program=f"{PROGRAMS}:join",
    config=lambda *_: JoinConfig(),
    inputs={"one": same("slow"), "many": each("slow")},
    group="seam",
    kinds={"text"},
)
def after(artifact: Artifact) -> Report:
    """What is downstream."""
    return Report()


@stage(
    program=f"{PROGRAMS}:count",
    config=lambda _, key: CountConfig(numbers=8, gate=str(Path(GATE) / "parts" / str(key))),
    partitions=PARTS,
    pool="accelerator",
    group="seam",
    kinds={"text"},
)
def parts(artifact: Artifact) -> Report:
    """Four of them, each at its own gate."""
    return Report()


defs = dg.Definitions(
    assets=[slow, after, parts],
    resources={"factory": Factory(active_profile().model_copy(update={"timeouts": Timeouts(kill_grace_s=2, lease_beat_s=0.5)}))},
    sensors=[orphans],
    executor=dg.in_process_executor,
)
