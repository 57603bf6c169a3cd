"""`python -m tests.ops.dedup.memory [CASE ...]`: MinHash and fuzzy deduplication on inputs beyond the process's memory, under a cap.

Each run is a process of its own in a memory cgroup of `--cap-mib` (see `tests.ops.dataflow.memory`). Every case runs once for each
`--memory-mib`, what the program is told it has; all of these must give one digest. The exit code is 1 where a run failed or
digests differ. Inputs are made once, below `--folder`, without a cap, and stay until it is removed.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from infra.artifacts.artifact import Artifact
from infra.artifacts.manifest import MANIFEST_NAME
from infra.artifacts.writer import Writer
from ops.dataflow.config import Execution
from ops.dedup.config import FuzzyDedupConfig, MinhashConfig
from ops.dedup.fuzzy import fuzzy_duplicates
from ops.dedup.minhash import minhash
from ops.normalize import hex_ids, text_digests
from ops.row_groups import GROUP_BYTES
from ops.shards import shard_name, write_table
from ops.units import MiB
from tests.builders import publish, run_program
from tests.ops.dataflow.memory import CGROUP, peak_kib, under_cap

WORDS = np.array(["".join(letters) for letters in np.random.default_rng(0).choice(list("abcdefghijklmnopqrstuvwxyz"), (20_000, 6))])
MEAN_WORDS = 350  # 2.4 kB


def _text(random: np.random.Generator, words: int) -> list[str]:
    found: list[str] = random.choice(WORDS, words).tolist()
    return found


def near(index: int, mib: float) -> list[str]:
    """`mib` of documents, of which every fifth is another with a word in a hundred replaced."""
    random = np.random.default_rng(index)
    texts: list[str] = []
    for _ in range(int(mib * MiB / 7 / MEAN_WORDS / 5)):
        found = [_text(random, int(words)) for words in random.lognormal(5.6, 0.7, 4) + 20]
        texts += map(" ".join, found)
        texts.append(" ".join(word if draw > 0.01 else "edited" for word, draw in zip(found[0], random.random(len(found[0])), strict=True)))
    return texts


def hot(count: int) -> list[str]:
    """One text in so many punctuations, which share every bucket, and as many texts that have no partner."""
    random = np.random.default_rng(count)
    same = _text(random, 60)
    marked = [" ".join(f"{word}{',.'[n >> place & 1]}" for place, word in enumerate(same)) for n in range(count)]
    return marked + [" ".join(_text(random, 60)) for _ in range(count)]


def long(first: int, count: int, megabytes: float) -> list[str]:
    """Documents of `megabytes`, alike but for a thousand words each."""
    shared = _text(np.random.default_rng(0), int(megabytes * 1e6 / 7))
    return [" ".join(_text(np.random.default_rng(n), 1_000) + shared) for n in range(first, first + count)]


def tiny(count: int) -> list[str]:
    """Documents of a word or two, of which many are alike."""
    return [f"{WORDS[n % len(WORDS)]} {n // len(WORDS)}" for n in range(count)]


SHAPES: dict[str, list[Callable[[], list[str]]]] = {
    "near-2": [partial(near, 0, 2)],
    "near-20": [partial(near, index, 2) for index in range(10)],
    "near-32": [partial(near, 0, 32)],
    "near-320": [partial(near, index, 32) for index in range(10)],
    "hot-200k": [partial(hot, 100_000), list],  # and an empty shard
    "long-500MB": [partial(long, 0, 25, 10), partial(long, 25, 25, 10)],  # longer than what is ever compared
    "long-160MB": [partial(long, 0, 20, 3.9), partial(long, 20, 21, 3.9)],  # compared
    "tiny-million": [partial(tiny, 1_000_000), list],
}
STAGES = ("minhash", "fuzzy")
CASES = tuple(f"{stage}:{shape}" for stage in STAGES for shape in SHAPES)


def source(folder: Path, shape: str) -> Artifact:
    """A normalized source, one shard for each list of texts."""
    directory = folder / shape
    if not (directory / MANIFEST_NAME).exists():
        out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
        for index, texts in enumerate(SHAPES[shape]):
            column = pa.array(texts(), pa.string())
            table = pa.table({"id": hex_ids(text_digests(column)), "text": column, "is_held_out": pa.array(np.zeros(len(column), bool))})
            write_table(out, shard_name(index, len(SHAPES[shape])), table.sort_by("id"), GROUP_BYTES)
        publish(directory, out, {})
    return Artifact.open_at(str(directory))


def signatures(folder: Path, shape: str) -> Artifact:
    directory = folder / f"{shape}-minhash"
    if not (directory / MANIFEST_NAME).exists():
        run_program(minhash, MinhashConfig(), directory, normalized=source(folder, shape))
    return Artifact.open_at(str(directory))


def run_here(case: str, folder: Path, memory_bytes: int) -> None:
    """Run one case in this process, and print what it took as JSON."""
    stage, _, shape = case.partition(":")
    documents = source(folder, shape)
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        began_s = time.process_time()
        if stage == "minhash":
            config = MinhashConfig(execution=Execution(memory_bytes=memory_bytes))
            found = run_program(minhash, config, Path(directory), normalized=documents)
        else:
            signed = {"a": signatures(folder, shape)}
            told = FuzzyDedupConfig(memory_bytes=memory_bytes)
            found = run_program(fuzzy_duplicates, told, Path(directory), normalized={"a": documents}, minhash=signed)
        cpu_s = time.process_time() - began_s
    counted = {name: found.stats[name] for name in ("documents", "candidates", "removed", "largest_bucket") if name in found.stats}
    print(json.dumps({"digest": found.digest, "peak_mib": peak_kib() >> 10, "cpu_s": round(cpu_s, 1), **counted}))


def run_capped(case: str, folder: Path, memory_mib: int, cap_mib: int) -> dict[str, int | float | str] | None:
    """Run one case in a process of its own, whose peak, CPU seconds, digest and counts come back; None where it died."""
    arguments = [sys.executable, "-m", "tests.ops.dedup.memory", "--here", case, "--folder", str(folder), "--memory-mib", str(memory_mib)]
    child = subprocess.run(arguments, stdout=subprocess.PIPE, preexec_fn=under_cap(cap_mib))
    found: dict[str, int | float | str] | None = None if child.returncode else json.loads(child.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="MinHash and fuzzy deduplication under a memory cap.")
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--cap-mib", type=int, default=1024, help="of the process")
    parser.add_argument("--memory-mib", type=int, action="append", help="what the program is told; may be repeated (default 1024)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "seaway-dedup-memory")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    told = options.memory_mib or [1024]
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.here:
        run_here(options.here, options.folder, told[0] * MiB)
        return 0
    failed = 0
    for case in options.cases:
        stage, _, shape = case.partition(":")
        (signatures if stage == "fuzzy" else source)(options.folder, shape)  # in this process, which has no cap
        digests = set()
        for memory_mib in told:
            found = run_capped(case, options.folder, memory_mib, options.cap_mib)
            failed += found is None
            digests |= {found["digest"]} if found else set()
            print(f"{case}, cap {options.cap_mib} MiB, told {memory_mib} MiB: {json.dumps(found) if found else 'died'}", flush=True)
        if len(digests) > 1:
            failed += 1
            print(f"{case}: digests differ", flush=True)
    with contextlib.suppress(OSError):  # nobody was in a cgroup, or a helper may still be ending
        (CGROUP / f"seaway-{os.getpid()}").rmdir()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
