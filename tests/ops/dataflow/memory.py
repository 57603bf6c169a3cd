"""`python -m tests.ops.dataflow.memory [CASE ...]`: stages on inputs far beyond a worker's memory, under a cap, as a table.

Each run is a process of its own in a memory cgroup of `--cap-mib` (needs root and cgroup v1; elsewhere RLIMIT_DATA), which counts
all that it touches, its workers included: the kernel kills it beyond. Every case runs once for each `--crew`; all of these must
give one digest. The exit code is 1 where a run failed or digests differ. Inputs are made once, below `--folder`, and stay until
it is removed.
"""

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from infra.artifacts.manifest import digest_of
from ops.config import NormalizeConfig, StoreConfig, TokenizeConfig
from ops.dataflow.config import Execution
from ops.dedup.config import ExactDedupConfig, MinhashConfig
from ops.label.config import LanguageConfig, QualityConfig
from ops.units import MiB
from tests.builders import run_program
from tests.ops.dataflow import memory_inputs as inputs
from tests.ops.dataflow.stages import SumGroups, sum_all

CGROUP = Path("/sys/fs/cgroup/memory")
SHAPES = ("plain-64", "plain-640", "long-500MB", "tiny-million", "spaces")
CASES = (
    *("sums:1", "sums:10", "exact:1", "exact:10"),
    *(f"normalize:{shape}" for shape in (*SHAPES, "hot-million")),
    *(f"tokens:{shape}" for shape in SHAPES),
    *(f"store:{shape}" for shape in SHAPES),
    *("language:plain-64", "language:plain-640", "language:tiny-million", "language:long-500MB"),
)

Prepare = Callable[[Path, str], object]
Run = Callable[[Path, str, Path, Execution], str]


def _sums(folder: Path, given: str, directory: Path, execution: Execution) -> str:
    out, _ = sum_all(directory, inputs.keyed_rows(folder, int(given)), SumGroups(os.devnull), execution)
    return digest_of(out.files)


def _exact(folder: Path, given: str, directory: Path, execution: Execution) -> str:
    from ops.dedup.exact import exact_duplicates

    sources = inputs.occurrences(folder, int(given), 0.5)
    return run_program(exact_duplicates, ExactDedupConfig(execution=execution), directory, normalized=sources).digest


def _normalize(folder: Path, given: str, directory: Path, execution: Execution) -> str:
    from ops.normalize import normalize

    config = NormalizeConfig(execution=execution)
    return run_program(normalize, config, directory, extracted=inputs.extracted(folder, given)).digest


def _tokens(folder: Path, given: str, directory: Path, execution: Execution) -> str:
    from ops.tokens import tokenize

    source, tokenizer = inputs.normalized(folder, given), inputs.tokenizer(folder)
    return run_program(tokenize, TokenizeConfig(execution=execution), directory, normalized=source, tokenizer=tokenizer).digest


def _store(folder: Path, given: str, directory: Path, execution: Execution) -> str:
    from ops.store import build_store

    return run_program(build_store, StoreConfig(execution=execution), directory, **inputs.store_inputs(folder, given)).digest


def _language(folder: Path, given: str, directory: Path, execution: Execution) -> str:
    from ops.label.language import label_language

    return run_program(label_language, LanguageConfig(execution=execution), directory, normalized=inputs.normalized(folder, given)).digest


def _minhash(folder: Path, given: str, directory: Path, execution: Execution) -> str:
    from ops.dedup.minhash import minhash

    return run_program(minhash, MinhashConfig(execution=execution), directory, normalized=inputs.normalized(folder, given)).digest


def _quality(folder: Path, given: str, directory: Path, execution: Execution) -> str:
    from ops.label.quality import score_quality

    return run_program(score_quality, QualityConfig(execution=execution), directory, normalized=inputs.normalized(folder, given)).digest


STAGES: dict[str, tuple[Prepare, Run]] = {
    "sums": (lambda folder, given: inputs.keyed_rows(folder, int(given)), _sums),
    "exact": (lambda folder, given: inputs.occurrences(folder, int(given), 0.5), _exact),
    "normalize": (inputs.extracted, _normalize),
    "tokens": (lambda folder, given: (inputs.normalized(folder, given), inputs.tokenizer(folder)), _tokens),
    "store": (inputs.store_inputs, _store),
    "language": (inputs.normalized, _language),
    "minhash": (inputs.normalized, _minhash),
    "quality": (inputs.normalized, _quality),
}


def run_here(case: str, folder: Path, execution: Execution) -> int:
    """Run one case in this process, and print what it took as JSON."""
    stage, _, given = case.partition(":")
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        began_s = time.process_time()
        digest = STAGES[stage][1](folder, given, Path(directory), execution)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = time.process_time() - began_s + children.ru_utime + children.ru_stime
    print(json.dumps({"digest": digest, "peak_mib": peak_kib() >> 10, "cpu_s": round(cpu_s, 1)}))
    return 0


def peak_kib() -> int:
    """The most that was resident of this process. (`ru_maxrss` would include what its parent held when it forked.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def under_cap(cap_mib: int) -> Callable[[], None]:
    """For the child, between fork and exec: into a cgroup of its own, or else under a limit on its data."""
    group = CGROUP / f"seaway-{os.getpid()}"

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    try:
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(cap_mib * MiB))
    except OSError:
        return lambda: resource.setrlimit(resource.RLIMIT_DATA, (cap_mib * MiB, cap_mib * MiB))
    return enter


def crew_of(words: str) -> Execution:
    """`2x512`: two workers of 512 MiB."""
    workers, _, memory_mib = words.partition("x")
    return Execution(workers=int(workers), memory_bytes=int(memory_mib) * MiB)


def main() -> int:
    parser = argparse.ArgumentParser(description="Stages under a memory cap.")
    parser.add_argument("cases", nargs="*", default=CASES)
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
        stage, _, given = case.partition(":")
        STAGES[stage][0](options.folder, given)  # in this process, which has no cap
        digests = set()
        for crew in crews:
            arguments = [sys.executable, "-m", "tests.ops.dataflow.memory", "--here", case, "--folder", str(options.folder), "--crew", crew]
            child = subprocess.run(arguments, stdout=subprocess.PIPE, preexec_fn=under_cap(options.cap_mib))
            if child.returncode:
                failed += 1
                print(f"| {case} | {crew} | exit code {child.returncode} | | |", flush=True)
                continue
            found = json.loads(child.stdout)
            digests.add(found["digest"])
            print(f"| {case} | {crew} | {found['peak_mib']} MiB | {found['cpu_s']} s | {found['digest'][:12]} |", flush=True)
        if len(digests) > 1:
            failed += 1
            print(f"| {case} | | | | digests differ |", flush=True)
    with contextlib.suppress(OSError):  # a helper of multiprocessing may still be ending
        (CGROUP / f"seaway-{os.getpid()}").rmdir()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
