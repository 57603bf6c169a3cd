"""`python -m tests.ops.memory [CASE ...]`: every stage on inputs far beyond a worker's memory, under a cap, as a table.

Each case runs once free (no cap, one worker that is told it has 4 GiB), then for each `--crew` as a process of its own in a memory
cgroup of `--cap-mib`, workers and all: the kernel kills it beyond. All of these must give one digest. The exit code is 1 where a
run failed or digests differ, and 2 where the machine allows no cgroup. A peak is the most anonymous memory that was seen in the
cgroup, asked 20 times a second: mapped files are taken back by the kernel when it needs their pages. Inputs are made once, below
`--folder`, and stay until it is removed.
"""

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ops.dataflow.config import Execution
from ops.units import MiB
from tests.ops.memory.cap import Cap, NoCapError, capped
from tests.ops.memory.stages import CASES, STAGES

FREE = "1x4096"
LOOK_S = 0.05


@dataclass(frozen=True)
class Ran:
    """How a run ended. `digest` is empty where it failed."""

    code: int
    digest: str = ""
    cpu_s: float = 0.0
    peak_mib: int = 0


def run_here(case: str, folder: Path, execution: Execution) -> int:
    """Run one case in this process, and print what it took as JSON."""
    name, _, shape = case.partition(":")
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        began_s = time.process_time()
        digest = STAGES[name].run(folder, shape, Path(directory), execution)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"digest": digest, "cpu_s": round(time.process_time() - began_s + children.ru_utime + children.ru_stime, 1)}))
    return 0


def run(case: str, crew: str, folder: Path, cap: Cap | None) -> Ran:
    """Run one case in a process of its own."""
    command = [sys.executable, "-m", "tests.ops.memory", "--here", case, "--folder", str(folder), "--crew", crew]
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=cap.enter if cap else None) as child:
        peak = 0
        while child.poll() is None:
            peak = max(peak, cap.anonymous_bytes() if cap else 0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(LOOK_S)
        assert child.stdout is not None
        told = child.stdout.read().splitlines()
    return Ran(child.returncode, peak_mib=peak // MiB, **json.loads(told[-1])) if child.returncode == 0 else Ran(child.returncode)


def crew_of(words: str) -> Execution:
    """`2x512`: two workers of 512 MiB."""
    workers, _, memory_mib = words.partition("x")
    return Execution(workers=int(workers), memory_bytes=int(memory_mib) * MiB)


def main() -> int:
    parser = argparse.ArgumentParser(description="Every stage under a memory cap.")
    parser.add_argument("cases", nargs="*", default=CASES, help=f"of {', '.join(CASES)}")
    parser.add_argument("--cap-mib", type=int, default=1024, help="of the whole process tree")
    parser.add_argument("--crew", action="append", help="workers x MiB that each is told it has; may be repeated (default 1x1024)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "seaway-memory")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    crews = options.crew or ["1x1024"]
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.here:
        return run_here(options.here, options.folder, crew_of(crews[0]))
    print(f"cap {options.cap_mib} MiB\n| case | crew | peak | CPU | digest |\n|---|---|---|---|---|")
    failed = 0
    for case in options.cases:
        name, _, shape = case.partition(":")
        STAGES[name].given(options.folder, shape)
        free = run(case, FREE, options.folder, None)
        failed += free.code != 0
        for crew in crews:
            with capped(options.cap_mib * MiB) as cap:
                ran = run(case, crew, options.folder, cap)
            verdict = ran.digest[:12] if ran.digest == free.digest else f"{ran.digest[:12]} differs from {free.digest[:12]} without a cap"
            failed += ran.code != 0 or ran.digest != free.digest
            told = f"{ran.peak_mib} MiB | {ran.cpu_s} s | {verdict}" if ran.code == 0 else f"exit code {ran.code} | | "
            print(f"| {case} | {crew} | {told} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoCapError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
