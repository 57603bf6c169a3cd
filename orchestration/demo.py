"""`seaway demo`: the whole lineage with progress in the terminal, and at its end what came out."""

import os
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from assets.lineage import Stage, in_order
from infra.dispatch.job import Job
from infra.dispatch.messages import Message
from orchestration.definitions import FACTORY, defs
from orchestration.funnel import show_funnel, show_results
from orchestration.instance import open_instance
from orchestration.jobs import SELECTIONS
from orchestration.walk import materialize
from orchestration.waves import Wave


def show_demo(console: Console, job: str) -> None:
    """Materialize a job's assets with progress in the terminal, then show what came out and where to look."""
    started = time.monotonic()
    progress = _Progress(console)
    FACTORY.listeners.append(progress.hear)
    with open_instance(FACTORY.profile) as instance:
        try:
            materialize(defs, FACTORY, instance, stages_of(job), progress.begin)
        finally:
            progress.finish()
    if job in ("data", "everything"):
        show_funnel(console, FACTORY)
    if job in ("evaluate", "everything"):
        show_results(console, FACTORY)
    chosen = os.environ.get("SEAWAY_PROFILE", "demo")  # a path, for a profile that is not built in
    look = "make ui" if chosen == "demo" else f"SEAWAY_PROFILE={chosen} make ui"
    console.print(
        f"{progress.jobs} jobs ran in {time.monotonic() - started:.0f} s. Look closer: {look}\n"
        f"artifacts {_shortened(FACTORY.profile.storage.root)}",
        soft_wrap=True,
    )


def stages_of(job: str) -> list[Stage]:
    """The stages of a job, upstream before downstream."""
    keys = {key.to_user_string() for key in SELECTIONS[job].resolve(defs.resolve_asset_graph())}
    return [stage for stage in in_order() if stage.key in keys]


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
            self._console.print(f"[dim]as before[/dim]  {escape(self._wave)}", soft_wrap=True)
            return
        self._status = self._console.status(escape(self._wave))
        self._status.start()

    def hear(self, job: Job, message: Message) -> None:
        if job.address not in self._seen:
            self._seen.add(job.address)
            self.jobs += 1
        if self._status is not None and message.progress is not None:
            self._status.update(escape(f"{job.title}: {message.text}"))

    def finish(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._console.print(f"{time.monotonic() - self._began:7.1f} s  {escape(self._wave)}", soft_wrap=True)
            self._status = None


def _shortened(path: str) -> str:
    return str(Path(path).relative_to(Path.cwd())) if path.startswith(f"{Path.cwd()}/") else path
