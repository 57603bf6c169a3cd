"""`seaway doctor`: does this profile work, from the first write to a finished job on every device it names?"""

import platform
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape
from sqlalchemy import make_url

from assets.partitions import PROFILE
from infra.catalog.catalog import Catalog
from infra.catalog.engine import CatalogError
from infra.dispatch.backend import EngineUnavailable
from infra.dispatch.engines.choice import answer_of
from infra.dispatch.outcome import JobFailed
from infra.storage.objects import create_exclusive, read_or_none, remove_tree, replace
from ops.crawl.listing import SourceError
from ops.decontaminate.evaluations import EvaluationError
from ops.decontaminate.evaluations import observe as observe_evaluation
from ops.observe import observe
from orchestration.definitions import FACTORY
from orchestration.errors import CommandError, UnwellError
from orchestration.hello import say_hello, targets_of
from orchestration.instance import open_instance, where_records_lie
from orchestration.slots import held_by_the_dead
from orchestration.standing import standing

GIB = 1024**3
Check = Callable[[], str]
WRONG = (OSError, ValueError, ImportError, EvaluationError, JobFailed, CatalogError, CommandError, EngineUnavailable)


def examine(console: Console, wait_s: float) -> None:
    """Run every check, say what each found, and fail if one failed.

    Args:
        wait_s: how long the hello jobs may take, queues included.

    Raises:
        UnwellError: names the checks that failed.
    """
    console.print(f"profile {PROFILE.name}")
    failed = _run(console, {"machine": _machine, "storage": _storage})
    if not failed:
        failed += _run(console, {"jobs": lambda: standing(FACTORY.store)})
    failed += _run(console, {"sources": _sources, "catalog": _catalog, "dagster": _dagster, "pools": _pools})
    unreachable = _run(console, {f"engine {PROFILE.backend.kind}": lambda: answer_of(PROFILE.backend, FACTORY.backend)})
    failed += unreachable
    if not unreachable and "storage" not in failed:
        with console.status(f"hello jobs on {', '.join(sorted(targets_of(PROFILE)))}"):
            answers = say_hello(FACTORY, wait_s)
        failed += _run(console, {f"hello on {device}": answer for device, answer in sorted(answers.items())})
    if failed:
        raise UnwellError(f"{', '.join(failed)} failed; mend what the lines above say and run `seaway doctor` again")


def _run(console: Console, checks: dict[str, Check]) -> list[str]:
    """Print a line for each check; the names of those that failed."""
    failed = []
    for name, check in checks.items():
        try:
            console.print(f"  [green]ok[/green]    {name}: {escape(check())}", soft_wrap=True)
        except WRONG as error:
            failed.append(name)
            console.print(f"  [red]wrong[/red] {name}: {escape(str(error))}", soft_wrap=True)
    return failed


def _machine() -> str:
    return f"Python {platform.python_version()}, {psutil.cpu_count()} cores, {psutil.virtual_memory().total / GIB:.0f} GiB"


def _storage() -> str:
    """Write, read back, create twice: the second create must be refused, or two attempts could both win."""
    root = PROFILE.storage.root
    folder = f"{root}/.doctor-{uuid.uuid4().hex}"
    try:
        replace(f"{folder}/plain", b"written")
        if read_or_none(f"{folder}/plain") != b"written":
            raise OSError(f"{root}: what was written can't be read back; choose another root")
        if not create_exclusive(f"{folder}/once", b"first") or create_exclusive(f"{folder}/once", b"second"):
            raise OSError(f"{root}: a conditional create does not hold here, so two attempts could both publish; choose another root")
    finally:
        remove_tree(folder)
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


def _catalog() -> str:
    with Catalog.open(PROFILE.storage.catalog):
        return f"{make_url(PROFILE.storage.catalog).render_as_string(hide_password=True)} opens, its schema is the newest"


def _dagster() -> str:
    with open_instance(PROFILE) as instance:
        instance.get_runs(limit=1)
        return f"records in {where_records_lie(PROFILE)} can be read"


def _pools() -> str:
    """How wide each pool is, and that no slot is held by a run that ended."""
    with open_instance(PROFILE) as instance:
        leaked = held_by_the_dead(instance)
        limits = {limit.name: limit.limit for limit in instance.event_log_storage.get_pool_limits()}
    if leaked:
        named = ", ".join(f"{pool} by run {run[:8]}" for pool, run in leaked)
        raise ValueError(f"slots are held by runs that ended: {named}; start the daemon (`seaway ui`), which frees them within a minute")
    shown = (f"{pool} {PROFILE.pools[pool].device}, {_slots(limits.get(pool))}" for pool in sorted(PROFILE.pools))
    return f"{'; '.join(shown)}; {PROFILE.concurrency.runs} runs at once"


def _slots(limit: int | None) -> str:
    return "no limit" if limit is None else f"{limit} slot{'' if limit == 1 else 's'}"
