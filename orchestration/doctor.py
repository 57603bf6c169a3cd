"""`seaway doctor`: does this profile work on this machine, from the first write to a finished job?"""

import platform
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape

from assets.partitions import PROFILE
from infra.artifacts.recipe import payload_of, recipe_of
from infra.artifacts.store import ArtifactStore
from infra.dispatch.dispatcher import JobFailed
from infra.dispatch.job import Job
from infra.storage.objects import create_exclusive, read_or_none, remove_tree, replace
from ops.crawl.listing import SourceError
from ops.decontaminate.evaluations import EvaluationError
from ops.decontaminate.evaluations import observe as observe_evaluation
from ops.hello import HelloConfig
from ops.observe import observe
from orchestration.definitions import FACTORY
from orchestration.errors import UnwellError
from orchestration.instance import prepare_home

GIB = 1024**3


def examine(console: Console) -> None:
    """Run every check, say what each found, and fail if one failed.

    Raises:
        UnwellError: names the checks that failed.
    """
    checks: dict[str, Callable[[], str]] = {
        "machine": _machine,
        "storage": lambda: _storage(PROFILE.storage.root),
        "sources": _sources,
        "dagster home": lambda: str(prepare_home(PROFILE)),
        "hello job": _hello,
    }
    failed = []
    console.print(f"profile {PROFILE.name}")
    for name, check in checks.items():
        try:
            console.print(f"  [green]ok[/green]    {name}: {escape(check())}", soft_wrap=True)
        except (OSError, ValueError, EvaluationError, JobFailed) as error:
            failed.append(name)
            console.print(f"  [red]wrong[/red] {name}: {escape(str(error))}", soft_wrap=True)
    if failed:
        raise UnwellError(f"{', '.join(failed)} failed; mend what the lines above say and run `seaway doctor` again")


def _machine() -> str:
    return f"Python {platform.python_version()}, {psutil.cpu_count()} cores, {psutil.virtual_memory().total / GIB:.0f} GiB"


def _storage(root: str) -> str:
    """Write, read back, create twice: the second create must be refused, or two attempts could both win."""
    folder = f"{root}/.doctor/{uuid.uuid4().hex}"
    try:
        replace(f"{folder}/plain", b"written")
        if read_or_none(f"{folder}/plain") != b"written":
            raise OSError(f"{root}: what was written can't be read back; choose another root")
        if not create_exclusive(f"{folder}/once", b"first") or create_exclusive(f"{folder}/once", b"second"):
            raise OSError(f"{root}: a conditional create does not hold here, so two attempts could both publish; choose another root")
    finally:
        remove_tree(f"{root}/.doctor")
    free = f", {shutil.disk_usage(root).free / GIB:.0f} GiB free" if Path(root).is_dir() else ""
    return f"{root}: written, read back, conditional create holds{free}"


def _sources() -> str:
    """Look at every source and every evaluation set, and say of all of them at once what can't be read."""
    problems = []
    for name, spec in sorted(PROFILE.sources.items()):
        try:
            observe(spec)
        except SourceError as error:
            problems.append(f"{name}: {error}")
    for evaluation in PROFILE.programs.evaluation_ngrams.evaluations:
        try:
            observe_evaluation(evaluation)
        except EvaluationError as error:
            problems.append(f"{evaluation.name}: {error}")
    if problems:
        raise SourceError("; ".join(problems))
    return f"{', '.join(sorted(PROFILE.sources))} can be read"


def _hello() -> str:
    """Send a job to the backend and read its artifact back."""
    config = HelloConfig(greeting=f"hello {uuid.uuid4().hex}")
    payload = payload_of("hello", "1", config, {})
    recipe = recipe_of(payload)
    root = f"{PROFILE.storage.root}/.doctor"
    store = ArtifactStore(root)
    job = Job(
        asset="hello",
        partition=None,
        program="ops.hello:hello",
        version="1",
        config=config.model_dump(),
        inputs={},
        recipe=recipe,
        payload=payload,
        address=store.address("hello", None, recipe),
        resources=PROFILE.resources_of("host"),
    )
    try:
        outcome = FACTORY.dispatcher_for(store).run(job, on_message=lambda message: None)
        store.verify(outcome.artifact)
    finally:
        remove_tree(root)
    return f"sent to backend {PROFILE.backend}, published and verified"
