"""What is held to the cap: every stage, on inputs of its kind. A case is `stage:input`, for example `tokens:plain-640`."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.artifacts.config import ProgramConfig
from infra.artifacts.manifest import digest_of
from infra.artifacts.program import Program
from ops.config import NormalizeConfig, StoreConfig, TokenizeConfig
from ops.dataflow.config import Execution
from ops.decontaminate.config import ContaminationConfig
from ops.decontaminate.flag import flag_contamination
from ops.dedup.config import ExactDedupConfig, FuzzyDedupConfig, MinhashConfig, ParagraphDedupConfig
from ops.dedup.exact import exact_duplicates
from ops.dedup.fuzzy import fuzzy_duplicates
from ops.dedup.minhash import minhash
from ops.dedup.paragraphs import paragraph_duplicates
from ops.extract.config import ExtractConfig
from ops.extract.documents import extract
from ops.label.config import LanguageConfig, QualityConfig
from ops.label.language import label_language
from ops.label.quality import score_quality
from ops.normalize import normalize
from ops.rules.config import RulesConfig
from ops.rules.labels import label_rules
from ops.store import build_store
from ops.tokens import tokenize
from tests.builders import run_program
from tests.ops.dataflow.stages import SumGroups, sum_all
from tests.ops.memory import inputs

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Stage:
    """A program, what it reads of an input (`given` makes it once, in a folder), its configuration, and its usual inputs."""

    program: Program
    given: Callable[[Path, str], Given]
    config: Callable[[Execution], ProgramConfig]
    shapes: tuple[str, ...]

    def run(self, folder: Path, shape: str, directory: Path, execution: Execution) -> str:
        return run_program(self.program, self.config(execution), directory, **self.given(folder, shape)).digest


@dataclass(frozen=True)
class Sums:
    """The shuffle itself: millions of rows, half of them under one key."""

    shapes: tuple[str, ...] = ("1", "10")

    def given(self, folder: Path, shape: str) -> Given:
        return {"shards": inputs.keyed_rows(folder, int(shape))}

    def run(self, folder: Path, shape: str, directory: Path, execution: Execution) -> str:
        return digest_of(sum_all(directory, self.given(folder, shape)["shards"], SumGroups(os.devnull), execution)[0].files)


def _source(folder: Path, shape: str) -> Given:
    return {"normalized": inputs.normalized(folder, shape)}


def _sources(folder: Path, shape: str) -> Given:
    return {"normalized": {"a": inputs.normalized(folder, shape)}}


SHAPES = ("plain-64", "plain-640", "long-500MB", "tiny-million", "spaces")
NEAR = ("near-32", "near-320", "near-hot-200k", "near-long-500MB", "near-long-160MB", "near-tiny-million")
STAGES: Mapping[str, Stage | Sums] = {
    "sums": Sums(),
    "extract": Stage(extract, lambda *given: {"raw": inputs.raw(*given)}, lambda execution: ExtractConfig(execution=execution), SHAPES),
    "normalize": Stage(
        normalize,
        lambda *given: {"extracted": inputs.extracted(*given)},
        lambda execution: NormalizeConfig(execution=execution),
        (*SHAPES, "hot-million"),
    ),
    "exact": Stage(
        exact_duplicates,
        lambda folder, shape: {"normalized": inputs.occurrences(folder, int(shape), 0.5)},
        lambda execution: ExactDedupConfig(execution=execution),
        ("1", "10"),  # million ids, half of them in both sources
    ),
    "paragraphs": Stage(paragraph_duplicates, _sources, lambda execution: ParagraphDedupConfig(execution=execution), SHAPES),
    "minhash": Stage(minhash, _source, lambda execution: MinhashConfig(execution=execution), (*SHAPES, *NEAR)),
    "fuzzy": Stage(
        fuzzy_duplicates,
        lambda *given: {**_sources(*given), "minhash": {"a": inputs.signatures(*given)}},
        lambda execution: FuzzyDedupConfig(memory_bytes=execution.memory_bytes),
        NEAR,
    ),
    "contamination": Stage(
        flag_contamination,
        lambda folder, shape: {**_source(folder, shape), "evaluation_ngrams": inputs.guard(folder)},
        lambda execution: ContaminationConfig(execution=execution),
        SHAPES,
    ),
    "rules": Stage(label_rules, _source, lambda execution: RulesConfig(execution=execution), SHAPES),
    "language": Stage(label_language, _source, lambda execution: LanguageConfig(execution=execution), SHAPES),
    "quality": Stage(score_quality, _source, lambda execution: QualityConfig(execution=execution), SHAPES),
    "tokens": Stage(
        tokenize,
        lambda folder, shape: {**_source(folder, shape), "tokenizer": inputs.tokenizer(folder)},
        lambda execution: TokenizeConfig(execution=execution),
        SHAPES,
    ),
    "store": Stage(build_store, inputs.store_inputs, lambda execution: StoreConfig(execution=execution), SHAPES),
}
CASES = tuple(f"{name}:{shape}" for name, stage in STAGES.items() for shape in stage.shapes)
