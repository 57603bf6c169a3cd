"""Jobs on tiny programs, and waiting for conditions."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import ProgramConfig
from infra.artifacts.program import Program
from infra.artifacts.recipe import payload_of, recipe_of
from infra.artifacts.store import ArtifactStore
from infra.dispatch.job import Job, Resources, Timeouts

DEADLINE_S = 60.0  # of a whole test step on a busy machine; conditions hold long before

QUICK = Timeouts(start_grace_s=60, step_s=60, kill_grace_s=2, lease_beat_s=0.1)


def job_of(
    store: ArtifactStore,
    built: Program,
    config: ProgramConfig,
    /,
    *,
    asset: str = "counted",
    partition: str | None = None,
    inputs: dict[str, Artifact | dict[str, Artifact]] | None = None,
    timeouts: Timeouts = QUICK,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    **changes: Any,
) -> Job:
    """The job that builds `built` in `store`."""
    found = inputs or {}
    digests = {name: _each(item, lambda artifact: artifact.digest) for name, item in found.items()}
    payload = payload_of(built.name, built.version, config, digests)
    recipe = recipe_of(payload)
    job = Job(
        asset=asset,
        partition=partition,
        program=built.path,
        version=built.version,
        config=config.model_dump(mode="json"),
        inputs={name: _each(item, lambda artifact: artifact.url) for name, item in found.items()},
        recipe=recipe,
        payload=payload,
        address=store.address(asset, partition, recipe),
        timeouts=timeouts,
        resources=resources,
    )
    return job.model_copy(update=changes)


def _each(item: Artifact | dict[str, Artifact], of: Callable[[Artifact], str]) -> Any:
    return of(item) if isinstance(item, Artifact) else {key: of(artifact) for key, artifact in item.items()}


def wait_for[T](condition: Callable[[], T], what: str) -> T:
    """Poll until the condition gives something true; fail after `DEADLINE_S`."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {DEADLINE_S:.0f} s for: {what}"
        time.sleep(0.01)
    return found


def processes_of(folder: Path) -> list[psutil.Process]:
    """Every living process whose command line or environment names `folder`, this one and zombies left out."""
    found = []
    for process in psutil.process_iter():
        try:
            told = [*process.cmdline(), *process.environ().values()]
            if (
                process.pid != psutil.Process().pid
                and process.status() != psutil.STATUS_ZOMBIE
                and any(str(folder) in word for word in told)
            ):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
