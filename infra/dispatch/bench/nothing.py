"""The job that does nothing, so that whatever it costs is the dispatcher's."""

import json
import time

from infra.artifacts.config import ProgramConfig
from infra.artifacts.program import Stats, program
from infra.artifacts.recipe import payload_of, recipe_of
from infra.artifacts.store import ArtifactStore
from infra.artifacts.writer import Writer
from infra.dispatch.job import Job

STARTED_NAME = "started.json"


class NothingConfig(ProgramConfig):
    """Which of many equal jobs it is."""

    number: int


class NothingStats(Stats):
    """There is nothing to count."""


@program(version="1")
def nothing(config: NothingConfig, out: Writer) -> NothingStats:
    """Write down when it started, in seconds since the epoch: the benchmark reads it on the same machine."""
    out.write_json(STARTED_NAME, {"number": config.number, "at_s": time.time()})
    return NothingStats()


def job_of(store: ArtifactStore, number: int) -> Job:
    """The job that does nothing for the `number`-th time."""
    config = NothingConfig(number=number)
    payload = payload_of(nothing.name, nothing.version, config, {})
    recipe = recipe_of(payload)
    return Job(
        asset="nothing",
        partition=str(number),
        program=nothing.path,
        version=nothing.version,
        config=config.model_dump(mode="json"),
        inputs={},
        recipe=recipe,
        payload=json.loads(json.dumps(payload)),
        address=store.address("nothing", str(number), recipe),
    )
