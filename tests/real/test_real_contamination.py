"""Decontamination against real evaluations: planted items are found however they are wrapped, unrelated corpora are not flagged."""

import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from infra.artifacts.writer import Writer
from ops.decontaminate.config import EvaluationNgramsConfig, EvaluationSet
from ops.decontaminate.gather import gather_sets
from ops.decontaminate.index import merge
from ops.decontaminate.lookup import PassageIndex
from ops.decontaminate.match import Coverage, Matcher, Standard
from ops.hashing.columns import TextColumn
from tests.real.corpora import rows_of
from tests.real.evaluations import RE_WRAPPED, evaluations, items
from tests.real.real_data import needs_real_data

pytestmark = needs_real_data

ITEMS = 100  # of each set, or all
MIN_COVERAGE = 0.5  # the default of `ContaminationConfig`


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> PassageIndex:
    """All sets, without any boilerplate: every one of their passages counts."""
    folder = tmp_path_factory.mktemp("index")
    config = EvaluationNgramsConfig(evaluations=evaluations())
    gathered, _ = gather_sets(config, Writer(str(folder / "attempt"), scratch_url=str(folder / "scratch")))
    return merge(gathered, config)


def judged(index: PassageIndex, texts: list[str]) -> Coverage:
    """What reaches the threshold, of train documents."""
    matcher = Matcher(index)
    hits = matcher.hits(TextColumn.of(pa.array(texts)))
    coverage = matcher.coverage(hits, np.zeros(len(texts), np.int64), Standard.of(index, np.zeros(len(index.features), bool)))
    reached = coverage.shares >= MIN_COVERAGE
    return Coverage(
        coverage.rows[reached], coverage.passages[reached], coverage.shares[reached], coverage.starts[reached], coverage.ends[reached]
    )


def inside_an_article(item: str, rng: random.Random) -> str:
    """The item as a paragraph between 3 kB of an encyclopaedia."""
    host = rng.choice(rows_of("wikipedia_en"))["text"]
    cut = max(0, host.find("\n\n", rng.randint(0, max(0, len(host) - 3_000))))
    return f"{host[max(0, cut - 1_500) : cut]}\n\n{item}\n\n{host[cut : cut + 1_500]}"


def recall(index: PassageIndex, wrapped: list[tuple[EvaluationSet, str]]) -> float:
    """The share of documents in which the item's own evaluation is found, at the item's place."""
    rng = random.Random(0)
    texts = [inside_an_article(item, rng) for _, item in wrapped]
    coverage = judged(index, texts)
    evaluation = index.passages["evaluation"].to_numpy()[coverage.passages]
    found = set()
    for row, owner, start, end in zip(coverage.rows, evaluation, coverage.starts, coverage.ends, strict=True):
        evaluation_set, item = wrapped[row]
        first = texts[row].encode().find(item.encode())
        inside = first <= start < end <= first + len(item.encode())
        if index.evaluations[owner] == evaluation_set.name and inside:
            found.add(int(row))
    return len(found) / len(texts)


def test_at_least_99_in_100_items_of_any_length_are_found_verbatim(index: PassageIndex) -> None:
    sampled = [(evaluation, item) for evaluation in evaluations() for item in items(evaluation, ITEMS)]
    assert sum(len(item.split()) < 13 for _, item in sampled) > 500
    assert recall(index, sampled) >= 0.99


@pytest.mark.parametrize("way", RE_WRAPPED)
def test_at_least_95_in_100_items_are_found_re_wrapped(index: PassageIndex, way: str) -> None:
    wrapped = [(evaluation, RE_WRAPPED[way](item)) for evaluation in evaluations() for item in items(evaluation, ITEMS)]
    assert recall(index, wrapped) >= 0.95


def test_at_most_1_in_100_documents_of_unrelated_corpora_is_flagged(index: PassageIndex) -> None:
    """Source code, and prose in the forms of benchmarks: question-and-answer pages, templates, law, proofs, novels."""
    flagged = {}
    for name in (
        "code",
        "tldr",
        "peps",
        "rust_rfcs",
        "eips",
        "openlogic",
        "german_laws",
        "eltec_eng",
        "licence_texts",
        "udhr",
        "react_docs_es",
    ):
        texts = sorted({row["text"] for row in rows_of(name)})
        flagged[name] = len(set(judged(index, texts).rows.tolist())) / len(texts)
    assert max(flagged.values()) <= 0.01, flagged


def test_templates_of_real_benchmarks_filled_with_other_contents_are_not_flagged(index: PassageIndex) -> None:
    """Hard negatives: the fixed words of a benchmark's items around contents that no item has."""
    rng = random.Random(1)
    words = [word for row in rows_of("rust_book")[:40] for word in row["text"].split() if word.isalpha()]

    def some(count: int) -> str:
        return " ".join(rng.choices(words, k=count))

    templates: list[Callable[[], str]] = [
        lambda: (
            f"Construct a complete truth table for the following argument. Then, using the truth table, determine whether the argument is "
            f"valid or invalid. If the argument is invalid, choose an option which presents a counterexample. {some(20)}"
        ),
        lambda: (
            f"Given two strings, determine the length of the longest common subsequence.\n\nStrings: {some(2).upper()}\nLength of longest "
            "common subsequence:"
        ),
        lambda: (
            f"Concept: {some(2)}. Question: Which of the following sentences best characterizes {some(2)}?\nA. {some(5)}.\nB. {some(5)}."
        ),
        lambda: f"Write a function to find the {some(3)} in the given {some(2)}.\n\ndef {some(1)}(a):\n    return {some(1)}(a)",
        lambda: f"Choose the best continuation:\n A. {some(15)}\n B. {some(15)}\n C. {some(15)}\n D. {some(15)}\nAnswer:",
        lambda: (
            f'from typing import List\n\n\ndef {rng.choice(words)}(numbers: List[int]) -> int:\n    """ {some(12)}\n    """\n    return 0'
        ),
        lambda: f"Passage: {some(60)}\nQuestion: {some(8)}?\nAnswer: yes",
    ]
    texts = [template() for template in templates for _ in range(100)]
    assert len(set(judged(index, texts).rows.tolist())) / len(texts) <= 0.01
