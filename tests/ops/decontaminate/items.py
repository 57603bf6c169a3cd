"""Evaluation sets on disk, filler text, and the two programs in one call."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.artifacts.artifact import Artifact
from ops.decontaminate.config import ContaminationConfig, EvaluationNgramsConfig, EvaluationSet
from ops.decontaminate.flag import flag_contamination
from ops.decontaminate.index import index_evaluations
from ops.shards import read_table, shard_names
from tests.builders import run_program

VOCABULARY = ["".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=random.Random(n).randint(2, 9))) for n in range(3_000)]


def prose(seed: int, words: int) -> str:
    """Random words, different for every seed."""
    return " ".join(random.Random(seed).choices(VOCABULARY, k=words))


def evaluation_set(folder: Path, name: str, questions: Sequence[str], **fields: Any) -> EvaluationSet:
    """A JSON Lines set with one `question` an item."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "items.jsonl").write_text("".join(json.dumps({"question": text}) + "\n" for text in questions))
    return EvaluationSet(name=name, root=str(folder), fields=("question",), **fields)


def flag(
    directory: Path,
    sources: Mapping[str, Artifact],
    evaluations: Sequence[EvaluationSet] = (),
    *,
    index: Mapping[str, Any] | None = None,
    **config: Any,
) -> dict[str, Artifact]:
    """Index the evaluations and flag every source."""
    ngrams = run_program(
        index_evaluations, EvaluationNgramsConfig(evaluations=tuple(evaluations), **(index or {})), directory / "index", normalized=sources
    )
    settings = ContaminationConfig(**config)
    return {
        source: run_program(flag_contamination, settings, directory / "flags" / source, normalized=artifact, evaluation_ngrams=ngrams)
        for source, artifact in sources.items()
    }


def rows_of(artifact: Artifact) -> dict[str, dict[str, Any]]:
    """id -> row, of all shards."""
    return {row["id"]: row for name in shard_names(artifact) for row in read_table(artifact, name).to_pylist()}
