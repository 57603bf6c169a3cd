"""The whole lineage, wave by wave, in this process: what `seaway demo` does."""

import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
from dagster_shared.error import SerializableErrorInfo
from rich.console import Console
from rich.status import Status

from assets.factory import Factory
from assets.lineage import in_order
from assets.resolve import Node
from infra.dispatch.job import Job
from infra.dispatch.messages import Message
from orchestration.definitions import FACTORY, defs
from orchestration.errors import DemoFailedError
from orchestration.funnel import show_results
from orchestration.instance import open_instance
from orchestration.waves import Wave, waves


def show_demo(console: Console) -> None:
    """Materialize everything with progress in the terminal, then show what came out and where to look."""
    started = time.monotonic()
    progress = _Progress(console)
    FACTORY.listeners.append(progress.hear)
    with open_instance(FACTORY.profile) as instance:
        materialize_everything(defs, FACTORY, instance, progress.begin)
    progress.finish()
    show_results(console, FACTORY)
    profile = "" if FACTORY.profile.name == "demo" else f" (SEAWAY_PROFILE={FACTORY.profile.name})"
    console.print(
        f"{progress.jobs} jobs ran in {time.monotonic() - started:.0f} s. Look closer: make ui{profile}\n"
        f"artifacts {_shortened(FACTORY.profile.storage.root)}",
        soft_wrap=True,
    )


class _Progress:
    """One line per run of the lineage, and below it what the running job says of itself."""

    def __init__(self, console: Console) -> None:
        self.jobs = 0
        self._console = console
        self._status: Status | None = None
        self._seen: set[str] = set()
        self._wave = ""
        self._began = 0.0

    def begin(self, wave: Wave, todo: bool) -> None:
        self.finish()
        self._wave = f"{', '.join(wave.assets)}" + (f" [{wave.partition}]" if wave.partition else "")
        self._began = time.monotonic()
        if not todo:
            self._console.print(f"[dim]as before[/dim]  {self._escaped(self._wave)}", soft_wrap=True)
            return
        self._status = self._console.status(self._escaped(self._wave))
        self._status.start()

    def hear(self, job: Job, message: Message) -> None:
        if job.address not in self._seen:
            self._seen.add(job.address)
            self.jobs += 1
        if self._status is not None and message.progress is not None:
            self._status.update(self._escaped(f"{job.title}: {message.text}"))

    def finish(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._console.print(f"{time.monotonic() - self._began:7.1f} s  {self._escaped(self._wave)}", soft_wrap=True)
            self._status = None

    @staticmethod
    def _escaped(text: str) -> str:
        return text.replace("[", "\\[")


def _shortened(path: str) -> str:
    return str(Path(path).relative_to(Path.cwd())) if path.startswith(f"{Path.cwd()}/") else path


def materialize_everything(
    defs: dg.Definitions, factory: Factory, instance: dg.DagsterInstance, on_wave: Callable[[Wave, bool], None]
) -> None:
    """Materialize what is missing, in the fewest runs.

    A wave is skipped when all its nodes are published and Dagster's record of each shows the same digest.

    Raises:
        DemoFailedError: a run failed; everything published so far stays, and the next call goes on from there.
    """
    job = defs.resolve_implicit_global_asset_job_def()
    for wave in waves(in_order()):
        todo = not all(_recorded(factory, instance, Node(asset, wave.partition)) for asset in wave.assets)
        on_wave(wave, todo)
        if todo:
            _run(job, instance, wave)


def _run(job: dg.JobDefinition, instance: dg.DagsterInstance, wave: Wave) -> None:
    result = job.execute_in_process(
        asset_selection=[dg.AssetKey(asset) for asset in wave.assets],
        partition_key=wave.partition,
        instance=instance,
        raise_on_error=False,
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )
    if not result.success:
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
