"""`python -m tests.ops.dataflow.memory [--cap-mib 1024] [CASE ...]`: stages on inputs far beyond a worker's memory, under a cap.

Each run is a process of its own in a memory cgroup of `cap` (needs root and cgroup v1; elsewhere RLIMIT_DATA), which counts all
that it touches, its workers included: the kernel kills it beyond. Printed are its own peak resident size and the digest; equal
inputs must give equal digests with other caps and numbers of workers. Inputs are made once, below `--folder`, and stay until it
is removed.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from ops.normalize import hex_ids, text_digests
from ops.row_groups import GROUP_BYTES
from ops.shards import shard_name, shard_writer, write_table
from ops.units import MiB
from tests.builders import publish, run_program

CGROUP = Path("/sys/fs/cgroup/memory")


_random = np.random.default_rng(0)
STEMS = np.array([f"{stem}{end}" for stem in ("har", "bor", "tid", "wat", "sai", "net", "lig", "win") for end in "abcdefghijklmno"])
LINES = [" ".join(STEMS[_random.zipf(1.3, 60) % len(STEMS)]) for _ in range(5_000)]
LINE_BYTES = sum(map(len, LINES)) // len(LINES)


def text(random: np.random.Generator, size: int) -> str:
    """About `size` bytes of lines that compress and repeat as text does."""
    return "\n".join(LINES[line] for line in random.integers(0, len(LINES), max(1, size // LINE_BYTES)).tolist())


def write_source(directory: Path, shards: list[Callable[[], list[str]]]) -> Artifact:
    """A normalized source; every shard's texts are made when it is written."""
    out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
    for index, texts in enumerate(shards):
        write_table(out, shard_name(index, len(shards)), _documents(texts()), GROUP_BYTES)
    return publish(directory, out, {})


def _documents(texts: list[str]) -> pa.Table:
    column = pa.array(texts, pa.string())
    ids = hex_ids(text_digests(column))
    count = len(texts)
    table = pa.table(
        {
            "id": ids,
            "text": column,
            "media_type": pa.array(["text/plain"] * count, pa.string()),
            "is_held_out": pa.array(np.zeros(count, bool)),
        }
    )
    return table.sort_by("id")


def plain(seed: int, mib: int) -> list[Callable[[], list[str]]]:
    """Documents of about 2.7 kB, `mib` of them in shards of 64 MiB."""

    def shard(index: int) -> list[str]:
        random = np.random.default_rng((seed, index))
        return [f"{seed} {index} {n} " + text(random, int(size)) for n, size in enumerate(random.lognormal(7.6, 0.8, 64 * MiB // 2_700))]

    return [lambda index=index: shard(index) for index in range(max(1, mib // 64))]


def long(count: int) -> list[Callable[[], list[str]]]:
    """Documents of 10 MB, 25 a shard."""
    return [
        lambda start=start: [f"{n} " + text(np.random.default_rng(n), 10_000_000) for n in range(start, start + 25)]
        for start in range(0, count, 25)
    ]


def tiny(count: int) -> list[Callable[[], list[str]]]:
    return [lambda: [f"{n} tide" for n in range(count)], list]


def spaces() -> list[Callable[[], list[str]]]:
    return [lambda: [" " * MiB, "\n" * MiB + "end", "word"]]


SOURCES: dict[str, Callable[[], list[Callable[[], list[str]]]]] = {
    "plain-64": lambda: plain(0, 64),
    "plain-640": lambda: plain(0, 640),
    "long-500MB": lambda: long(50),
    "tiny-million": lambda: tiny(1_000_000),
    "spaces": spaces,
}


def source(folder: Path, name: str) -> Artifact:
    directory = folder / name
    if not (directory / ".artifact.json").exists():
        directory.mkdir(parents=True, exist_ok=True)
        write_source(directory, SOURCES[name]())
    return Artifact.open_at(str(directory))


def occurrences(folder: Path, millions: int, hot: float) -> dict[str, Artifact]:
    """Two sources of documents without text: a share of the second's ids are the first's."""
    found = {}
    for name in ("a", "b"):
        directory = folder / f"ids-{millions}-{hot}" / name
        if not (directory / ".artifact.json").exists():
            out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
            for index in range(millions):
                with shard_writer(out, shard_name(index, millions), pa.schema([("id", pa.string()), ("is_held_out", pa.bool_())])) as write:
                    for batch in _ids(name, index, hot):
                        write(batch)
            publish(directory, out, {})
        found[name] = Artifact.open_at(str(directory))
    return found


def _ids(name: str, index: int, hot: float) -> Iterator[pa.RecordBatch]:
    own, shared = (np.random.default_rng((ord(letter), index)).bytes(16 * 500_000) for letter in (name, "s"))
    digests = shared[: int(hot * 500_000) * 16] + own[int(hot * 500_000) * 16 :]
    ids = pa.array(sorted(hex_ids(digests).to_pylist()))
    for start in range(0, len(ids), 8_192):
        part = ids.slice(start, 8_192)
        yield pa.record_batch({"id": part, "is_held_out": pa.array(np.zeros(len(part), bool))})


def keyed_rows(folder: Path, millions: int) -> tuple[Any, ...]:
    """Rows of which half have one and the same key."""
    from ops.dataflow.shard import whole_shards
    from tests.ops.dataflow.stages import ROWS

    directory = folder / f"keyed-{millions}"
    names = [shard_name(index, millions) for index in range(millions)]
    if not (directory / ".artifact.json").exists():
        out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
        for index, name in enumerate(names):
            random = np.random.default_rng(index)
            with shard_writer(out, name, ROWS) as write:
                for start in range(0, 1_000_000, 8_192):
                    rows = min(8_192, 1_000_000 - start)
                    keys = random.integers(0, 1 << 63, rows).astype(np.uint64)
                    keys[random.random(rows) < 0.5] = np.uint64(7)
                    numbers = np.arange(start, start + rows) + index * 1_000_000
                    texts = pa.array(["x" * 40] * rows)
                    write(pa.record_batch([texts, pa.array(keys), pa.array(numbers), texts], schema=ROWS))
        publish(directory, out, {})
    return whole_shards(Artifact.open_at(str(directory)), names, ROWS.names)


def run_case(case: str, folder: Path, directory: Path, workers: int, memory_mib: int) -> str:
    """Run one stage; its digest."""
    from ops.dataflow.config import Execution

    stage, _, given = case.partition(":")
    execution = Execution(workers=workers, memory_bytes=memory_mib * MiB)
    if stage == "sums":
        from infra.artifacts.manifest import digest_of
        from tests.ops.dataflow.stages import SumGroups, sum_all

        out, _ = sum_all(directory, keyed_rows(folder, int(given)), SumGroups(os.devnull), execution)
        return digest_of(out.files)
    if stage == "exact":
        from ops.dedup.config import ExactDedupConfig
        from ops.dedup.exact import exact_duplicates

        sources = occurrences(folder, int(given), 0.5)
        return run_program(exact_duplicates, ExactDedupConfig(execution=execution), directory, normalized=sources).digest
    if stage == "language":
        from ops.label.config import LanguageConfig
        from ops.label.language import label_language

        return run_program(label_language, LanguageConfig(execution=execution), directory, normalized=source(folder, given)).digest
    if stage == "minhash":
        from ops.dedup.config import MinhashConfig
        from ops.dedup.minhash import minhash

        return run_program(minhash, MinhashConfig(execution=execution), directory, normalized=source(folder, given)).digest
    if stage == "quality":
        from ops.label.config import QualityConfig
        from ops.label.quality import score_quality

        return run_program(score_quality, QualityConfig(execution=execution), directory, normalized=source(folder, given)).digest
    if stage == "tokens":
        from ops.config import TokenizeConfig
        from ops.tokens import tokenize

        config = TokenizeConfig(execution=execution)
        return run_program(tokenize, config, directory, normalized=source(folder, given), tokenizer=tokenizer(folder)).digest
    raise ValueError(f"no case {case}")


def tokenizer(folder: Path) -> Artifact:
    from ops.config import TokenizerConfig
    from ops.tokenizer import train_tokenizer

    directory = folder / "tokenizer"
    if not (directory / ".artifact.json").exists():
        config = TokenizerConfig(vocab_size=2_000, sample_bytes=4 * MiB, max_source_share=1.0)
        run_program(train_tokenizer, config, directory, normalized={"plain": source(folder, "plain-64")})
    return Artifact.open_at(str(directory))


def under_cap(cap_mib: int) -> Callable[[], None]:
    """For the child, between fork and exec: into a cgroup of its own, or else under a limit on its data."""
    group = CGROUP / f"seaway-{os.getpid()}"
    try:
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(cap_mib * MiB))
    except OSError:
        return lambda: resource.setrlimit(resource.RLIMIT_DATA, (cap_mib * MiB, cap_mib * MiB))
    return lambda: (group / "cgroup.procs").write_text(str(os.getpid())) and None


def main() -> int:
    parser = argparse.ArgumentParser(description="Stages under a memory cap.")
    parser.add_argument("cases", nargs="*", default=["exact:1", "exact:10", "sums:1", "sums:10", "language:plain-64", "language:plain-640"])
    parser.add_argument("--cap-mib", type=int, default=1024, help="of the whole process tree: workers x memory, and the driver")
    parser.add_argument("--memory-mib", type=int, default=1024, help="what the stage is told a worker has")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "seaway-memory")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.here:
        with tempfile.TemporaryDirectory(dir=options.folder) as directory:
            began_s = time.process_time()
            digest = run_case(options.here, options.folder, Path(directory), options.workers, options.memory_mib)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = time.process_time() - began_s + children.ru_utime + children.ru_stime
        print(json.dumps({"digest": digest, "peak_mib": peak_kib() >> 10, "cpu_s": round(cpu_s, 1)}))
        return 0
    failed = 0
    for case in options.cases:
        prepare(case, options.folder)
        arguments = [sys.executable, "-m", "tests.ops.dataflow.memory", "--here", case, "--folder", str(options.folder)]
        arguments += ["--workers", str(options.workers), "--memory-mib", str(options.memory_mib)]
        child = subprocess.run(arguments, stdout=subprocess.PIPE, preexec_fn=under_cap(options.cap_mib))
        failed += child.returncode != 0
        print(
            f"{case} cap {options.cap_mib} MiB, {options.workers} x {options.memory_mib} MiB:",
            child.stdout.decode().strip() or f"exit code {child.returncode}",
        )
        sys.stdout.flush()
    with contextlib.suppress(OSError):  # a helper of multiprocessing may still be ending
        (CGROUP / f"seaway-{os.getpid()}").rmdir()
    return failed


def peak_kib() -> int:
    """The most that was resident of this process. (`ru_maxrss` would include what its parent held when it forked.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def prepare(case: str, folder: Path) -> None:
    """Make a case's input in this process, which has no cap."""
    stage, _, given = case.partition(":")
    if stage == "sums":
        keyed_rows(folder, int(given))
    elif stage == "exact":
        occurrences(folder, int(given), 0.5)
    else:
        source(folder, given)
        if stage == "tokens":
            tokenizer(folder)


if __name__ == "__main__":
    sys.exit(main())
