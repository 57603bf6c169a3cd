"""What the memory runs read: ordinary documents, very long ones, very many, one text a million times, a megabyte of nothing.

Everything is made once, below a folder, and shard by shard: making it takes less memory than reading it may.
"""

import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from infra.artifacts.artifact import Artifact
from infra.artifacts.manifest import MANIFEST_NAME
from infra.artifacts.writer import Writer
from ops.config import TokenizeConfig, TokenizerConfig
from ops.dataflow.shard import Shard, whole_shards
from ops.decontaminate.config import EvaluationNgramsConfig
from ops.decontaminate.index import index_evaluations
from ops.dedup.config import MinhashConfig
from ops.dedup.minhash import minhash
from ops.extract.documents import DOCUMENT_SCHEMA
from ops.normalize import hex_ids, text_digests
from ops.row_groups import GROUP_BYTES
from ops.shards import read_batches, shard_name, shard_names, shard_writer, write_table
from ops.tokenizer import train_tokenizer
from ops.tokens import tokenize
from ops.units import MiB
from tests.builders import publish, run_program
from tests.ops.dataflow.stages import ROWS
from tests.ops.decontaminate.items import evaluation_set, prose
from tests.ops.extract.archives import page
from tests.ops.memory.near import hot, long, near, tiny

_random = np.random.default_rng(0)
STEMS = np.array([f"{stem}{end}" for stem in ("har", "bor", "tid", "wat", "sai", "net", "lig", "win") for end in "abcdefghijklmno"])
LINES = [" ".join(STEMS[_random.zipf(1.3, 60) % len(STEMS)]) for _ in range(5_000)]
LINE_BYTES = sum(map(len, LINES)) // len(LINES)
BATCH_ROWS = 8_192

Texts = Callable[[], list[str]]
"""The texts of one shard, made when they are written."""


def text(random: np.random.Generator, size: int) -> str:
    """About `size` bytes of lines that compress and repeat as text does."""
    return "\n".join(LINES[line] for line in random.integers(0, len(LINES), max(1, size // LINE_BYTES)).tolist())


def _plain(index: int) -> list[str]:
    random = np.random.default_rng((0, index))
    return [f"0 {index} {n} " + text(random, int(size)) for n, size in enumerate(random.lognormal(7.6, 0.8, 64 * MiB // 2_700))]


def _long(start: int, count: int) -> list[str]:
    return [f"{n} " + text(np.random.default_rng(n), 10_000_000) for n in range(start, start + count)]


def _tiny(count: int) -> list[str]:
    return [f"{n} tide" for n in range(count)]


def _hot(count: int) -> list[str]:
    return ["the same words " * 10 if n % 2 else f"{n} other words " * 10 for n in range(count)]


def _spaces() -> list[str]:
    return [" " * MiB + "begin", "\n" * MiB + "end", "a" + "\t " * MiB + "b", "word"]


SOURCES: dict[str, list[Texts]] = {
    "plain-64": [partial(_plain, 0)],  # documents of about 2.7 kB, 64 MiB a shard
    "plain-640": [partial(_plain, index) for index in range(10)],
    "long-500MB": [partial(_long, 0, 25), partial(_long, 25, 25)],  # documents of 10 MB
    "tiny-million": [partial(_tiny, 1_000_000), list],  # and an empty shard
    "hot-million": [partial(_hot, 500_000), partial(_hot, 500_000)],  # half of all rows have one text, the others come twice
    "spaces": [_spaces],
    "near-32": [partial(near, 0, 32)],
    "near-320": [partial(near, index, 32) for index in range(10)],
    "near-hot-200k": [partial(hot, 100_000), list],  # half of all rows share every bucket; and an empty shard
    "near-long-500MB": [partial(long, 0, 25, 10), partial(long, 25, 25, 10)],  # longer than what is ever compared
    "near-long-160MB": [partial(long, 0, 20, 3.9), partial(long, 20, 21, 3.9)],  # compared
    "near-tiny-million": [partial(tiny, 1_000_000), list],
}


def normalized(folder: Path, name: str) -> Artifact:
    """A source as normalization leaves it, one shard for each list of texts."""

    def write(out: Writer) -> None:
        for texts, place in _placed(name):
            _write(out, _identified(texts()), *place)

    return _made(folder / name, write)


def _identified(texts: list[str]) -> pa.Table:
    column = pa.array(list(dict.fromkeys(texts)), pa.string())
    count = len(column)
    held_out = pa.array(np.zeros(count, bool))
    named = pa.array([f"file:{n}" for n in range(count)])
    columns = [hex_ids(text_digests(column)), column, named, pa.repeat(pa.scalar("text/plain"), count), held_out]
    return pa.table(columns, names=["id", "text", "source_id", "media_type", "is_held_out"]).sort_by("id")


def raw(folder: Path, name: str) -> Artifact:
    """The same texts as pages of a web archive, or as files where they are too short for records of their own."""
    schema = pa.schema([("uri", pa.string()), ("media_type", pa.string()), ("payload", pa.binary())])

    def write(out: Writer) -> None:
        for texts, (index, count) in _placed(name):
            found = texts()
            if name.startswith("tiny"):
                columns = [[f"file:{n}" for n in range(len(found))], ["text/plain"] * len(found), [text.encode() for text in found]]
                arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                write_table(out, f"files-{index:05d}-of-{count:05d}.parquet", pa.Table.from_arrays(arrays, schema=schema), GROUP_BYTES)
                continue
            with out.open(f"warc/{index:05d}.warc.gz") as stream:
                for n, text in enumerate(found):
                    stream.write(gzip.compress(page(f"http://host.example/{index}/{n}", text), 1, mtime=0))

    return _made(folder / f"{name}-raw", write)


def extracted(folder: Path, name: str) -> Artifact:
    """The same texts as extraction leaves them."""
    sizes = []

    def write(out: Writer) -> None:
        for texts, place in _placed(name):
            found = texts()
            sizes.append(sum(map(len, found)))
            _write(out, _provided(found, place[0]), *place)

    return _made(folder / f"{name}-extracted", write, lambda: {"text_bytes": sum(sizes)})


def _provided(texts: list[str], index: int) -> pa.Table:
    count = len(texts)
    values: dict[str, Any] = {
        "text": texts,
        "source_id": [f"http://host.example/{index}/{n}" for n in range(count)],
        "media_type": ["text/plain"] * count,
        "extractor": ["text/1"] * count,
        "warc_file": [f"warc/{index}"] * count,
        "warc_offset": range(count),
        "warc_length": [10] * count,
        "page_starts": [None] * count,
    }
    return pa.table([pa.array(values[field.name], field.type) for field in DOCUMENT_SCHEMA], schema=DOCUMENT_SCHEMA)


def _placed(name: str) -> list[tuple[Texts, tuple[int, int]]]:
    shards = SOURCES[name]
    return [(texts, (index, len(shards))) for index, texts in enumerate(shards)]


def _write(out: Writer, table: pa.Table, index: int, count: int) -> None:
    write_table(out, shard_name(index, count), table, GROUP_BYTES)


def _made(directory: Path, write: Callable[[Writer], object], stats: Callable[[], dict[str, Any]] = dict) -> Artifact:
    if not (directory / MANIFEST_NAME).exists():
        directory.mkdir(parents=True, exist_ok=True)
        out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
        write(out)
        publish(directory, out, stats())
    return Artifact.open_at(str(directory))


def occurrences(folder: Path, millions: int, hot: float) -> dict[str, Artifact]:
    """Two sources of documents without text: a share of the second's ids are the first's."""
    schema = pa.schema([("id", pa.string()), ("is_held_out", pa.bool_())])

    def write(out: Writer, name: str) -> None:
        for index in range(millions):
            with shard_writer(out, shard_name(index, millions), schema) as sink:
                for batch in _ids(name, index, hot):
                    sink(batch)

    return {name: _made(folder / f"ids-{millions}-{hot}" / name, lambda out, name=name: write(out, name)) for name in ("a", "b")}  # type: ignore[misc]


def _ids(name: str, index: int, hot: float) -> Iterator[pa.RecordBatch]:
    own, shared = (np.random.default_rng((ord(letter), index)).bytes(16 * 500_000) for letter in (name, "s"))
    digests = shared[: int(hot * 500_000) * 16] + own[int(hot * 500_000) * 16 :]
    ids = pa.array(sorted(hex_ids(digests).to_pylist()))
    for start in range(0, len(ids), BATCH_ROWS):
        part = ids.slice(start, BATCH_ROWS)
        yield pa.record_batch({"id": part, "is_held_out": pa.array(np.zeros(len(part), bool))})


def keyed_rows(folder: Path, millions: int) -> tuple[Shard, ...]:
    """Rows of which half have one and the same key."""
    names = [shard_name(index, millions) for index in range(millions)]

    def write(out: Writer) -> None:
        for index, name in enumerate(names):
            random = np.random.default_rng(index)
            with shard_writer(out, name, ROWS) as sink:
                for start in range(0, 1_000_000, BATCH_ROWS):
                    rows = min(BATCH_ROWS, 1_000_000 - start)
                    keys = random.integers(0, 1 << 63, rows).astype(np.uint64)
                    keys[random.random(rows) < 0.5] = np.uint64(7)
                    numbers = np.arange(start, start + rows) + index * 1_000_000
                    texts = pa.array(["x" * 40] * rows)
                    sink(pa.record_batch([texts, pa.array(keys), pa.array(numbers), texts], schema=ROWS))

    return whole_shards(_made(folder / f"keyed-{millions}", write), names, ROWS.names)


def tokenizer(folder: Path) -> Artifact:
    directory = folder / "tokenizer"
    if not (directory / MANIFEST_NAME).exists():
        config = TokenizerConfig(vocab_size=2_000, sample_bytes=4 * MiB, max_source_share=1.0)
        run_program(train_tokenizer, config, directory, normalized={"plain": normalized(folder, "plain-64")})
    return Artifact.open_at(str(directory))


def guard(folder: Path) -> Artifact:
    """Ten thousand questions that occur nowhere, and some of the lines that the documents are made of."""
    directory = folder / "guard"
    if not (directory / MANIFEST_NAME).exists():
        questions = [prose(n, 40) for n in range(10_000)] + LINES[::500]
        config = EvaluationNgramsConfig(evaluations=(evaluation_set(folder / "quiz", "quiz", questions),))
        run_program(index_evaluations, config, directory, normalized={})
    return Artifact.open_at(str(directory))


def signatures(folder: Path, name: str) -> Artifact:
    directory = folder / f"{name}-minhash"
    if not (directory / MANIFEST_NAME).exists():
        run_program(minhash, MinhashConfig(), directory, normalized=normalized(folder, name))
    return Artifact.open_at(str(directory))


def tokens(folder: Path, name: str) -> Artifact:
    directory = folder / f"{name}-tokens"
    if not (directory / MANIFEST_NAME).exists():
        run_program(tokenize, TokenizeConfig(), directory, normalized=normalized(folder, name), tokenizer=tokenizer(folder))
    return Artifact.open_at(str(directory))


@dataclass(frozen=True)
class _Labels:
    """A set beside a source: `columns` are functions of the number of rows."""

    columns: dict[str, Callable[[int], pa.Array]]

    def write(self, source: Artifact, out: Writer, prefix: str = "") -> None:
        for name in shard_names(source):
            ids = pa.Table.from_batches(read_batches(source, name, ["id"]), pa.schema([("id", pa.string())]))["id"]
            write_table(out, prefix + name, pa.table({"id": ids, **{key: make(len(ids)) for key, make in self.columns.items()}}))


NO = _Labels({"is_duplicate": lambda rows: pa.array(np.zeros(rows, bool))})
LABELS = {
    "language": _Labels({"language": lambda rows: pa.array(np.where(np.arange(rows) % 10, "en", "de"))}),
    "quality": _Labels(
        {
            "score": lambda rows: pa.array((np.arange(rows) % 10 / 10).astype(np.float32)),
            "quality_bucket": lambda rows: pa.array((np.arange(rows) % 5).astype(np.int8)),
        }
    ),
    "contamination": _Labels({"is_contaminated": lambda rows: pa.array(np.arange(rows) % 97 == 1)}),
}


def store_inputs(folder: Path, name: str) -> dict[str, Any]:
    """All that a store of one source is made of."""
    source = normalized(folder, name)
    sets = {kind: {"a": _made(folder / f"{name}-{kind}", partial(labels.write, source))} for kind, labels in LABELS.items()}
    flags = _made(folder / f"{name}-flags", lambda out: NO.write(source, out, "a/"))
    return {
        "normalized": {"a": source},
        "tokens": {"a": tokens(folder, name)},
        **sets,
        "exact_duplicates": flags,
        "fuzzy_duplicates": flags,
    }
