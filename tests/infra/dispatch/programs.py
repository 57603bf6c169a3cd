"""Tiny real programs, each of which does one thing that can go wrong in a job."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

from infra.artifacts import store
from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.config import ProgramConfig, execution_only
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from infra.dispatch.endings import PoisonedDeviceError


class CountConfig(ProgramConfig):
    """How far to count, and where to meet the test on the way."""

    numbers: int = 10
    gate: str | None = execution_only(None)  # a folder: `passed-N` is made on the way, and number N waits for `open`
    gate_at: int = execution_only(5)
    children: int = execution_only(0)  # processes that sleep beside the work and are never ended


class CountStats(Stats):
    numbers: int


@program(version="1")
def count(config: CountConfig, out: Writer) -> CountStats:
    """Write the numbers, resuming from what a killed attempt had saved."""
    for _ in range(config.children):
        _start_a_sleeper()
    progress = Path(out.scratch_url)
    progress.mkdir(parents=True, exist_ok=True)
    saved = progress / "numbers.txt"
    done = saved.read_text().split() if saved.exists() else []
    for number in range(len(done), config.numbers):
        if config.gate is not None:
            _pass(Path(config.gate), number, config.gate_at)
        done.append(str(number))
        whole = progress / "numbers.tmp"
        whole.write_text("\n".join(done))
        whole.replace(saved)
        out.progress(number + 1, config.numbers, "numbers")
    with out.open("numbers.txt") as stream:
        stream.write("\n".join(done).encode())
    return CountStats(numbers=len(done))


def _pass(gate: Path, number: int, gate_at: int) -> None:
    if number == gate_at:
        (gate / f"worker-{os.getpid()}").touch()
        while not (gate / "open").exists():
            time.sleep(0.01)


class PublicationConfig(ProgramConfig):
    """Whether the first attempt's process is killed before the one create that publishes, or after it."""

    moment: Literal["before", "after"]
    marks: str = execution_only()  # a folder that remembers that it happened


@program(version="1")
def die_at_publication(config: PublicationConfig, out: Writer) -> CountStats:
    """Write one file, and have this process killed around the create of its manifest, once."""
    died = Path(config.marks) / "died"
    if not died.exists():
        died.touch()
        create = store.create_exclusive

        def create_and_die(url: str, data: bytes) -> bool:
            if config.moment == "after":
                create(url, data)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("unreachable")

        store.create_exclusive = create_and_die  # type: ignore[attr-defined]
    with out.open("one.txt") as stream:
        stream.write(b"1")
    return CountStats(numbers=1)


class FaultConfig(ProgramConfig):
    """What is to go wrong."""

    fault: str
    marks: str | None = execution_only(None)  # a folder in which each attempt leaves a mark


@program(version="1")
def fail(config: FaultConfig, out: Writer) -> CountStats:
    """Go wrong in the configured way. With `marks`, only the first attempt does."""
    if config.marks is not None:
        marks = Path(config.marks)
        earlier = len(list(marks.iterdir()))
        (marks / f"attempt-{earlier}").touch()
        if earlier:
            out.write_json("result.json", {"fault": config.fault})
            return CountStats(numbers=1)
    return FAULTS[config.fault](out)


def _raise(out: Writer) -> CountStats:
    raise KeyError("the program's own mistake")


def _exit_zero(out: Writer) -> CountStats:
    sys.exit(0)


def _stall(out: Writer) -> CountStats:
    out.progress(1, 2, "steps")
    return wait_for_a_step_that_never_comes()


def wait_for_a_step_that_never_comes() -> CountStats:
    while True:
        time.sleep(60)


def _crash(out: Writer) -> CountStats:
    os.kill(os.getpid(), signal.SIGSEGV)
    return CountStats(numbers=0)


def _poison(out: Writer) -> CountStats:
    raise PoisonedDeviceError("the device context is sticky")


def _memory(out: Writer) -> CountStats:
    raise MemoryError


def _disk_full(out: Writer) -> CountStats:
    with open("/dev/full", "wb", buffering=0) as stream:
        stream.write(b"x")
    return CountStats(numbers=0)


def _hide_bytes(out: Writer) -> CountStats:
    with out.open("data.txt") as stream:
        stream.write(b"as written")
    Path(out.url, "data.txt").write_bytes(b"as changed")
    return CountStats(numbers=1)


def _start_a_sleeper() -> int:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    child.returncode = 0  # disowned: the supervisor has to find it
    return child.pid


def _leave_a_child(out: Writer) -> CountStats:
    child = _start_a_sleeper()
    out.write_json("child.json", child)
    return CountStats(numbers=1)


def _leave_a_daemon(out: Writer) -> CountStats:
    """A process that left its group and its session, and whose parent is gone."""
    middle = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"
    subprocess.run([sys.executable, "-c", middle], check=True)
    out.write_json("child.json", {})
    return CountStats(numbers=1)


FAULTS = {
    "raise": _raise,
    "exit_zero": _exit_zero,
    "stall": _stall,
    "crash": _crash,
    "poison": _poison,
    "memory": _memory,
    "disk_full": _disk_full,
    "hide_bytes": _hide_bytes,
    "leave_a_child": _leave_a_child,
    "leave_a_daemon": _leave_a_daemon,
}


class JoinConfig(ProgramConfig):
    separator: str = ","


@program(version="3")
def join(config: JoinConfig, one: Artifact, many: Artifacts, out: Writer) -> CountStats:
    """Join the texts of all inputs, one first, then by partition."""
    texts = []
    for artifact in (one, *many.values()):
        with artifact.open("numbers.txt") as stream:
            texts.append(stream.read().decode())
    with out.open("joined.txt") as stream:
        stream.write(config.separator.join(texts).encode())
    return CountStats(numbers=len(texts))


class CompileConfig(ProgramConfig):
    """Which program is compiled."""

    name: str = "step"


class CompileStats(Stats):
    found: int


@program(version="1")
def compile_once(config: CompileConfig, out: Writer) -> CompileStats:
    """Do as XLA does: look for a program in the folder of compiled ones, and put it there."""
    path = Path(os.environ["JAX_COMPILATION_CACHE_DIR"]) / config.name
    found = path.is_file() and path.read_bytes() == b"compiled"
    path.write_bytes(b"compiled")
    out.write_json("nothing.json", [])
    return CompileStats(found=int(found))


class TellConfig(ProgramConfig):
    """How many steps, and where to meet the test after the second."""

    steps: int = 5
    gate: str | None = execution_only(None)


class TellStats(Stats):
    steps: int


@program(version="1")
def tell(config: TellConfig, out: Writer) -> TellStats:
    """Write a line a step, all at the end; needs no storage before."""
    for step in range(config.steps):
        if config.gate is not None:
            _pass(Path(config.gate), step, 2)
        out.progress(step + 1, config.steps, "steps")
    with out.open("told.txt") as stream:
        stream.write(b"".join(b"step %d\n" % step for step in range(config.steps)))
    return TellStats(steps=config.steps)
