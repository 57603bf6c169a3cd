"""Every program over documents, on a small input that has every kind of row: what the primitives' promises are held against."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import ProgramConfig
from infra.artifacts.manifest import MANIFEST_NAME
from infra.artifacts.program import Program
from ops.config import NormalizeConfig, StoreConfig, TokenizeConfig, TokenizerConfig
from ops.dataflow.config import Execution
from ops.decontaminate.config import ContaminationConfig, EvaluationNgramsConfig
from ops.decontaminate.flag import flag_contamination
from ops.decontaminate.index import index_evaluations
from ops.dedup.config import ExactDedupConfig, FuzzyDedupConfig, MinhashConfig, ParagraphDedupConfig
from ops.dedup.exact import exact_duplicates
from ops.dedup.fuzzy import fuzzy_duplicates
from ops.dedup.minhash import minhash
from ops.dedup.paragraphs import paragraph_duplicates
from ops.extract.config import ExtractConfig
from ops.extract.documents import DOCUMENT_SCHEMA, extract
from ops.label.config import LanguageConfig, QualityConfig
from ops.label.language import label_language
from ops.label.quality import score_quality
from ops.normalize import normalize
from ops.rules.config import RulesConfig
from ops.rules.labels import label_rules
from ops.shards import shard_name
from ops.store import build_store
from ops.tokenizer import train_tokenizer
from ops.tokens import tokenize
from tests.builders import artifact_of, run_program
from tests.ops.decontaminate.items import evaluation_set, prose
from tests.ops.extract.archives import gzipped, page, raw_artifact, warc
from tests.ops.normalized import normalized
from tests.ops.stores import Document, store_inputs

FILES = 3
NORMALIZED_BYTES = 14_000  # of a shard: three are filled
SHARDS = 2  # of the sources
QUESTIONS = [prose(900_000 + n, 40) for n in range(5)]

Given = dict[str, Any]
Settings = Callable[[Execution], ProgramConfig]


@dataclass(frozen=True)
class Stage:
    """A program, what it reads (`given` makes it in a folder, in an order of arrival), and its configuration."""

    program: Program
    given: Callable[[Path, int], Given]
    config: Settings


def run(name: str, directory: Path, execution: Execution = Execution(), order: int = 0) -> Artifact:  # noqa: B008 - frozen
    """Run a program on its input, whose rows and files arrive in an order that `order` decides."""
    stage = STAGES[name]
    return run_program(stage.program, stage.config(execution), directory, **stage.given(directory / f"in-{order}", order))


def raw(directory: Path, order: int = 0) -> Given:
    """Two archives, each of pages and a request, the second cut off in its last record."""
    archives = [
        gzipped(
            [page(f"http://h.example/{n}/{m}", f"Page {m} of file {n}, and the tide.") for m in range(3)]
            + [warc("request", "http://h.example/", b"GET /")]
        )
        for n in range(2)
    ]
    return {"raw": raw_artifact(directory, {"warc/0.warc.gz": archives[0], "warc/1.warc.gz": archives[1][:-9]})}


def extracted(directory: Path, order: int) -> Given:
    """Ordinary texts, exact copies with other and with equal provenance, blanks, long whitespace, and pages that move with it."""
    rows: list[tuple[Any, ...]] = []
    for n in range(160):
        text = f"{n} tides and harbours " * (1 + n % 9) + (" " * 300 + "end") * (n % 11 == 0)
        pages = [0, text.index("tides"), len(text) - 1] if n % 22 == 0 else None
        rows += [(text, f"http://h/{n}/{copy}", "text/html", "x/1", "warc/a", n, 10, pages) for copy in range(1 + n % 3)]
    rows += [("\u3000 ", f"blank {n}", "text/plain", "text/1", None, None, None, None) for n in range(4)]
    rows += [("one and the same", "file", "text/plain", "text/1", None, None, None, None)] * 5
    chance = random.Random(order)
    chance.shuffle(rows)
    parts = [rows[index :: FILES - 1] for index in range(FILES - 1)] + [[]]
    chance.shuffle(parts)
    tables = {shard_name(index, FILES): _table(part) for index, part in enumerate(parts)}
    return {"extracted": artifact_of(directory, tables, {"text_bytes": sum(len(row[0].encode()) for row in rows)})}


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    arrays = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(DOCUMENT_SCHEMA)]
    return pa.Table.from_arrays(arrays, schema=DOCUMENT_SCHEMA)


def texts(order: int) -> list[str]:
    """Prose with and without an evaluation's question, a near copy of every seventh, a line that returns, other languages, nothing."""
    found = [f"{prose(n, 60)}.\n\n{QUESTIONS[n % 5] if n % 3 else ''}" for n in range(42)]
    found += [f"{text} and a word more" for text in found[::7]]
    found += [f"{prose(500 + n, 30)}\n{prose(77, 30)}" for n in range(6)]
    found += [
        "Das Meer ist heute warm, sagte die Fischerin.",
        "海は静かです。港は静かです。",
        "def tide(depth):\n    return depth + 1\n",
        "...",
    ]
    random.Random(order).shuffle(found)
    return found


def source(directory: Path, order: int) -> Given:
    return {"normalized": _kept(directory / "source", lambda there: normalized(there, texts(order), shards=SHARDS))}


def sources(directory: Path, order: int) -> Given:
    """Two that share texts, in an order that `order` decides; some of the second's are held out."""
    given = texts(0)
    made = {
        "a": source(directory / "a", order)["normalized"],
        "b": _kept(directory / "b", lambda there: normalized(there, [*given[::4], prose(1, 50)], held_out=given[:8:4], shards=SHARDS)),
    }
    return {"normalized": dict(sorted(made.items(), reverse=order % 2 == 1))}


def tokenizing(directory: Path, order: int) -> Given:
    given = source(directory, order)
    config = TokenizerConfig(vocab_size=400, sample_bytes=1 << 20, max_source_share=1.0)
    inputs = {"normalized": {"a": given["normalized"]}}
    return given | {"tokenizer": _kept(directory / "tokenizer", lambda there: run_program(train_tokenizer, config, there, **inputs))}


def guarding(directory: Path, order: int) -> Given:
    config = EvaluationNgramsConfig(evaluations=(evaluation_set(directory / "quiz", "quiz", QUESTIONS),))
    index = _kept(directory / "index", lambda there: run_program(index_evaluations, config, there, normalized={}))
    return source(directory, order) | {"evaluation_ngrams": index}


def signing(directory: Path, order: int) -> Given:
    given = sources(directory, order)

    def signed(name: str, artifact: Artifact) -> Artifact:
        return _kept(directory / "minhash" / name, lambda there: run_program(minhash, MinhashConfig(), there, normalized=artifact))

    return given | {"minhash": {name: signed(name, artifact) for name, artifact in given["normalized"].items()}}


def labelled(directory: Path, order: int = 0) -> Given:
    """All that a store is made of."""
    kinds = [
        Document(f"{n}", tuple(range(2, 2 + n % 40)), n % 9 == 0, n % 7 == 0, n % 5 == 0, n % 4 == 0, score=n % 10 / 10, quality=n % 5)
        for n in range(120)
    ]
    return dict(store_inputs(directory, {"a": kinds[:70], "b": kinds[50:]}, shards=SHARDS))


def _kept(directory: Path, make: Callable[[Path], Artifact]) -> Artifact:
    """What was made there before, or is made now: attempts that follow each other read one input."""
    return Artifact.open_at(str(directory)) if (directory / MANIFEST_NAME).exists() else make(directory)


STAGES: Mapping[str, Stage] = {
    "extract": Stage(extract, raw, lambda execution: ExtractConfig(execution=execution)),
    "normalize": Stage(
        normalize, extracted, lambda execution: NormalizeConfig(shard_bytes=NORMALIZED_BYTES, held_out_rate=0.2, execution=execution)
    ),
    "exact": Stage(exact_duplicates, sources, lambda execution: ExactDedupConfig(execution=execution)),
    "paragraphs": Stage(paragraph_duplicates, sources, lambda execution: ParagraphDedupConfig(execution=execution)),
    "minhash": Stage(minhash, source, lambda execution: MinhashConfig(execution=execution)),
    "fuzzy": Stage(fuzzy_duplicates, signing, lambda execution: FuzzyDedupConfig(memory_bytes=execution.memory_bytes)),
    "contamination": Stage(
        flag_contamination, guarding, lambda execution: ContaminationConfig(boilerplate_documents=100, execution=execution)
    ),
    "rules": Stage(label_rules, source, lambda execution: RulesConfig(execution=execution)),
    "language": Stage(label_language, source, lambda execution: LanguageConfig(execution=execution)),
    "quality": Stage(score_quality, source, lambda execution: QualityConfig(execution=execution)),
    "tokens": Stage(tokenize, tokenizing, lambda execution: TokenizeConfig(execution=execution)),
    "store": Stage(build_store, labelled, lambda execution: StoreConfig(min_quality=0.3, execution=execution)),
}
