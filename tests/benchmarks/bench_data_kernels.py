"""The text kernels against their numpy and Python twins, and against peers where these are installed.

    python -m tests.benchmarks.bench_data_kernels

Input: the standard library's source, cut into documents of about 2,700 characters. Time is CPU time of one
process; each row is the better of two rounds, interleaved.
"""

import json
import sysconfig
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from infra.artifacts.writer import Writer
from ops.config import EvaluationNgramsConfig, EvaluationSet, MinhashConfig
from ops.decontaminate.gather import gather_sets
from ops.decontaminate.index import merge
from ops.decontaminate.match import Matcher, Standard
from ops.dedup.minhash import Hasher
from ops.hashing import definition
from ops.hashing.columns import TextColumn
from ops.label.rules import score_texts

DOCUMENT_CHARS, DOCUMENTS = 2_700, 3_000

Candidate = tuple[str, int, Callable[[list[str]], object]]
"""Name, how many documents it gets (slow ones get few), and what to time."""


def documents() -> list[str]:
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(errors="replace")
        found += [text[at : at + DOCUMENT_CHARS] for at in range(0, len(text), DOCUMENT_CHARS)]
    return found[:DOCUMENTS]


def minhash_candidates() -> list[Candidate]:
    hasher = Hasher(MinhashConfig())
    found: list[Candidate] = [
        ("seaway kernel", DOCUMENTS, lambda texts: hasher.buckets(TextColumn.of(pa.array(texts)))),
        ("numpy twin", 30, lambda texts: [_numpy_minima(text) for text in texts]),
    ]
    if find_spec("rensa"):
        found.append(("rensa", 500, _rensa))
    if find_spec("datasketch"):
        found.append(("datasketch", 100, _datasketch))
    return found


def _shingles(text: str) -> list[str]:
    clean = definition.cleaned(text, 500_000)
    return [clean[i : i + 5] for i in range(len(clean) - 4)]


def _numpy_minima(text: str) -> object:
    pairs = np.array(definition.permutations(42, 286), np.uint32)
    shingles = np.array(definition.windows(definition.char_units(definition.cleaned(text, 500_000)), 5), np.uint64)
    return (pairs[:, :1] * (shingles >> np.uint64(32)).astype(np.uint32) + pairs[:, 1:]).min(axis=1)


def _rensa(texts: list[str]) -> None:
    from rensa import RMinHash  # type: ignore[import-not-found]

    for text in texts:
        signature = RMinHash(num_perm=286, seed=42)
        signature.update(_shingles(text))
        signature.digest()


def _datasketch(texts: list[str]) -> None:
    from datasketch import MinHash  # type: ignore[import-not-found]

    for text in texts:
        MinHash(num_perm=286, seed=42).update_batch([shingle.encode() for shingle in _shingles(text)])


def decontamination_candidates(texts: list[str]) -> list[Candidate]:
    with TemporaryDirectory() as folder:
        (Path(folder) / "quiz.jsonl").write_text("".join(json.dumps({"q": text}) + "\n" for text in texts[::40]))
        config = EvaluationNgramsConfig(evaluations=(EvaluationSet(name="quiz", root=folder, fields=("q",)),))
        gathered, _ = gather_sets(config, Writer(f"{folder}/attempt", scratch_url=f"{folder}/scratch"))
    index = merge(gathered, config)
    matcher, known = Matcher(index), set(index.features.tolist())
    standard = Standard.of(index, index.is_boilerplate)

    def look_up(some: list[str]) -> None:
        matcher.coverage(matcher.hits(TextColumn.of(pa.array(some))), np.zeros(len(some), int), standard)

    def look_up_in_python(some: list[str]) -> None:
        for text in some:
            [feature in known for feature in definition.windows(definition.word_units(text.lower()), 13)]

    return [("seaway kernel", DOCUMENTS, look_up), ("python twin", 60, look_up_in_python)]


def quality_candidates() -> list[Candidate]:
    return [("seaway kernel", DOCUMENTS, lambda texts: score_texts(TextColumn.of(pa.array(texts)), np.ones(len(texts), bool), 200_000))]


def measure(title: str, candidates: list[Candidate], texts: list[str]) -> None:
    """Print documents and megabytes a CPU second, and the ratio to the first candidate."""
    print(f"\n{title}")
    best = dict.fromkeys((name for name, _, _ in candidates), 0.0)
    for _, _, work in candidates:
        work(texts[:3])  # compile and warm up
    for _ in range(2):
        for name, count, work in candidates:
            some = texts[:count]
            started = time.process_time()
            work(some)
            best[name] = max(best[name], len(some) / (time.process_time() - started))
    first = next(iter(best.values()))
    size = sum(len(text.encode()) for text in texts) / len(texts) / 1e6
    for name, rate in best.items():
        print(f"  {name:16} {rate:10,.0f} documents/s {rate * size:8.1f} MB/s   {first / rate:8.1f}x slower than the kernel")


def main() -> None:
    texts = documents()
    measure("MinHash, 286 permutations of character 5-grams", minhash_candidates(), texts)
    measure("Overlap with a 13-gram index", decontamination_candidates(texts), texts)
    measure("Quality features", quality_candidates(), texts)


if __name__ == "__main__":
    main()
