"""XLA's own cache folder, staged through a shared place: programs compiled on one machine are found by the next.

    {url}/{build}/{file}        one object a compiled program; build = jax and jaxlib version and device kind

Files come down when a job starts and new ones go up when it ends. A job never fails or waits long for it: without
the shared place it compiles again. jax is not imported here; its versions are read from the installed metadata.
"""

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from uuid import uuid4

from infra.caches.device_kind import device_kind
from infra.caches.kv import packed, unpacked
from infra.dispatch.environment import SHARED_PROGRAMS_VARIABLE
from infra.storage.objects import create_exclusive, list_files, read_or_none
from infra.supervise.placement import DEVICE_VARIABLE

DRAIN_S = 30.0  # for pushing at exit
STAGE_S = 60.0  # for fetching at the start; what hasn't come by then is compiled
TRANSFERS = 8
DIRECTORY_VARIABLE = "JAX_COMPILATION_CACHE_DIR"  # XLA's own
IGNORED = re.compile(r"^\.|\.tmp$|-atime$")  # XLA marks its uses in `-atime` files; they are of this machine

_log = logging.getLogger(__name__)


def build_namespace(kind: str) -> str | None:
    """`jax-0.12.0_jaxlib-0.12.0_NVIDIA-H200`, or None (no sharing) where jax is not installed or no device was observed."""
    try:
        parts = [f"{package}-{version(package)}" for package in ("jax", "jaxlib")]
    except PackageNotFoundError:
        return None
    return "_".join([*parts, re.sub(r"[^A-Za-z0-9.]+", "-", kind)]) if kind else None


@contextmanager
def shared_programs(environment: Mapping[str, str]) -> Iterator[None]:
    """`staged`, as the environment of a job's process says: nothing without a shared place, and once on each host."""
    directory, url = environment.get(DIRECTORY_VARIABLE), environment.get(SHARED_PROGRAMS_VARIABLE)
    if not directory or not url or environment.get("SEAWAY_LOCAL_RANK", "0") != "0":
        yield
        return
    with staged(Path(directory), url, device_kind(environment.get(DEVICE_VARIABLE, "cpu"))):
        yield


@contextmanager
def staged(directory: Path, url: str | None, kind: str, *, stage_s: float = STAGE_S, drain_s: float = DRAIN_S) -> Iterator[Path]:
    """Fill `directory` from the shared cache, and give back what was added to it when the block ends, however it ends.

    Args:
        directory: what JAX_COMPILATION_CACHE_DIR names; made if it is missing.
        url: the shared cache; None for none.
        kind: as observed (`device_kind`); programs of one kind mean nothing to another.
    """
    build = build_namespace(kind)
    if url is None or build is None:
        yield directory
        return
    shared = f"{url.rstrip('/')}/{build}"
    known = _fetch(directory, shared, time.monotonic() + stage_s)
    try:
        yield directory
    finally:
        _push(directory, shared, known, drain_s)


def _fetch(directory: Path, shared: str, deadline: float) -> set[str]:
    """Bring down what is missing here; gives the names that the shared cache has."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        names = {name for name in list_files(shared) if "/" not in name and not IGNORED.search(name)}
        here = set(os.listdir(directory))
    except OSError as error:
        _log.warning("no compiled programs come from %s; they are compiled again: %s", shared, error)
        return set()
    _bounded([partial(_fetch_one, directory, shared, name) for name in sorted(names - here)], deadline - time.monotonic())
    return names


def _fetch_one(directory: Path, shared: str, name: str) -> None:
    entry = read_or_none(f"{shared}/{name}")
    program = None if entry is None else unpacked(name, entry)
    if program is None:
        return
    temporary = directory / f".{uuid4().hex}.tmp"
    try:
        temporary.write_bytes(program)
        os.replace(temporary, directory / name)
    finally:
        with suppress(OSError):
            temporary.unlink()


def _push(directory: Path, shared: str, known: set[str], drain_s: float) -> None:
    try:
        new = sorted(name for name in set(os.listdir(directory)) - known if not IGNORED.search(name) and (directory / name).is_file())
    except OSError:
        return
    _bounded([partial(_push_one, directory, shared, name) for name in new], drain_s)


def _push_one(directory: Path, shared: str, name: str) -> None:
    create_exclusive(f"{shared}/{name}", packed(name, (directory / name).read_bytes()))


def _bounded(transfers: Sequence[Callable[[], None]], seconds: float) -> None:
    """Carry transfers out side by side for at most so long; what fails or is left is only told."""
    todo, failures, ended = deque(transfers), list[Exception](), threading.Semaphore(0)
    threads = [threading.Thread(target=_work, args=(todo, failures, ended), daemon=True) for _ in range(min(TRANSFERS, len(todo)))]
    for thread in threads:  # daemons: the exit of the process must not wait for a server that is silent
        thread.start()
    deadline = time.monotonic() + seconds
    on_time = sum(ended.acquire(timeout=max(0.0, deadline - time.monotonic())) for _ in transfers)
    todo.clear()
    if lost := len(transfers) - on_time + len(failures):
        why = failures[0] if failures else f"the others were not there after {seconds:.0f} s"
        _log.warning("%d of %d compiled programs were not shared: %s", lost, len(transfers), why)


def _work(todo: deque[Callable[[], None]], failures: list[Exception], ended: threading.Semaphore) -> None:
    with suppress(IndexError):
        while True:
            transfer = todo.popleft()
            try:
                transfer()
            except Exception as error:
                failures.append(error)
            ended.release()
