"""Decontamination against real evaluations: planted items are found, unrelated corpora are not flagged."""

import random
import textwrap
from pathlib import Path

import pytest

from ops.config import EvaluationSet
from ops.decontaminate.evaluations import files_of, items_of, texts_of
from tests.ops.decontaminate.items import flag, rows_of
from tests.ops.normalized import id_of, normalized
from tests.real.corpora import corpus
from tests.real.corpora import rows_of as corpus_rows
from tests.real.real_data import REAL_DATA, needs_real_data

pytestmark = needs_real_data

EVALUATIONS = (
    ("gsm8k", "gsm8k", "*.jsonl", ("question", "answer")),
    ("humaneval", "humaneval", "*.jsonl.gz", ("prompt", "canonical_solution")),
    ("mmlu", "mmlu", "*.jsonl", ("question", "choices")),
    ("arc", "arc", "*.jsonl", ("query", "choices")),
    ("boolq", "boolq", "*.jsonl.gz", ("query",)),
    ("xquad", "xquad", "*.json*", ("data.paragraphs.context", "data.paragraphs.qas.question")),
    ("truthfulqa", "truthfulqa", "*.csv", ("Question", "Best Answer")),
)


def evaluations() -> tuple[EvaluationSet, ...]:
    return tuple(
        EvaluationSet(name=name, root=str(REAL_DATA / "evals" / folder), glob=glob, fields=fields)
        for name, folder, glob, fields in EVALUATIONS
    )


def questions(name: str, field: str, count: int) -> list[str]:
    found = next(evaluation for evaluation in evaluations() if evaluation.name == name)
    texts = [text for path in files_of(found) for item in items_of(path) for text in texts_of(item, field)]
    return random.Random(0).sample([text for text in texts if len(text.split()) >= 20], count)


def test_planted_items_are_found_verbatim_and_re_wrapped(tmp_path: Path) -> None:
    planted = {"gsm8k": questions("gsm8k", "question", 30), "mmlu": questions("mmlu", "question", 30)}
    hosts = [row["text"] for row in corpus_rows("wikipedia_en")]
    plain, wrapped = {}, {}
    for name, items in planted.items():
        for n, item in enumerate(items):
            host = hosts[n]
            plain[f"{host}\n\n{item}\n\nnote {name}"] = name
            wrapped[f"{host}\n\n{textwrap.fill(item, 50)}\n\nagain {name}"] = name
    source = normalized(tmp_path / "in", [*plain, *wrapped, *hosts[60:]])
    rows = rows_of(flag(tmp_path, {"web": source}, evaluations())["web"])
    for texts in (plain, wrapped):
        found = [name in rows[id_of(text)]["evaluations"] for text, name in texts.items()]
        assert sum(found) == len(found)


@pytest.mark.parametrize(("name", "most"), [("peps", 0), ("rust_rfcs", 0), ("eltec_eng", 0), ("code", 0), ("german_laws", 0)])
def test_unrelated_corpora_are_hardly_flagged(tmp_path: Path, name: str, most: int) -> None:
    stats = flag(tmp_path, {name: corpus(tmp_path, name)}, evaluations())[name].stats
    assert stats["contaminated"] <= most, stats
