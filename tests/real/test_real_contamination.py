"""Decontamination against real evaluations: planted items are found however they are wrapped, unrelated corpora are not flagged."""

import random
from collections.abc import Callable
from dataclasses import dataclass

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
from tests.real.evaluations import RE_WRAPPED, evaluations, items, short_questions
from tests.real.real_data import REAL_DATA, needs_real_data

pytestmark = needs_real_data

ITEMS = 100  # of each set, or all
MIN_COVERAGE = 0.5  # the default of `ContaminationConfig`


@dataclass(frozen=True)
class Guard:
    """All sets, without any boilerplate: every one of their passages counts."""

    index: PassageIndex
    matcher: Matcher
    standard: Standard

    def judge(self, texts: list[str]) -> Coverage:
        """What reaches the threshold, of train documents."""
        hits = self.matcher.hits(TextColumn.of(pa.array(texts)))
        coverage = self.matcher.coverage(hits, np.zeros(len(texts), np.int64), self.standard)
        return coverage.take(np.flatnonzero(coverage.shares >= MIN_COVERAGE))


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    folder = tmp_path_factory.mktemp("index")
    config = EvaluationNgramsConfig(evaluations=evaluations())
    gathered, _ = gather_sets(config, Writer(str(folder / "attempt"), scratch_url=str(folder / "scratch")))
    index = merge(gathered, config)
    return Guard(index, Matcher(index), Standard.unfiltered(index))


def inside_an_article(item: str, rng: random.Random) -> str:
    """The item as a paragraph between 3 kB of an encyclopaedia."""
    host = rng.choice(rows_of("wikipedia_en"))["text"]
    cut = max(0, host.find("\n\n", rng.randint(0, max(0, len(host) - 3_000))))
    return f"{host[max(0, cut - 1_500) : cut]}\n\n{item}\n\n{host[cut : cut + 1_500]}"


def are_found(guard: Guard, wrapped: list[tuple[EvaluationSet, str]]) -> list[bool]:
    """[items]: whether the item's own evaluation is found, at the item's place."""
    rng = random.Random(0)
    texts = [inside_an_article(item, rng) for _, item in wrapped]
    coverage = guard.judge(texts)
    evaluation = guard.index.passages["evaluation"].to_numpy()[coverage.passages]
    found = [False] * len(texts)
    for row, owner, start, end in zip(coverage.rows, evaluation, coverage.starts, coverage.ends, strict=True):
        evaluation_set, item = wrapped[row]
        first = texts[row].encode().find(item.encode())
        inside = first <= start < end <= first + len(item.encode())
        found[row] |= guard.index.evaluations[owner] == evaluation_set.name and bool(inside)
    return found


def recall(guard: Guard, wrapped: list[tuple[EvaluationSet, str]]) -> float:
    found = are_found(guard, wrapped)
    return sum(found) / len(found)


def test_at_least_99_in_100_items_of_any_length_are_found_verbatim(guard: Guard) -> None:
    sampled = [(evaluation, item) for evaluation in evaluations() for item in items(evaluation, ITEMS)]
    assert sum(len(item.split()) < 13 for _, item in sampled) > 500
    assert recall(guard, sampled) >= 0.99


@pytest.mark.parametrize("way", RE_WRAPPED)
def test_at_least_95_in_100_items_are_found_re_wrapped(guard: Guard, way: str) -> None:
    wrapped = [(evaluation, RE_WRAPPED[way](item)) for evaluation in evaluations() for item in items(evaluation, ITEMS)]
    assert recall(guard, wrapped) >= 0.95


def test_short_items_are_found_at_every_length_verbatim_and_re_wrapped(guard: Guard, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 3 words to 12, each length by itself: long items can't make up for a length that gets lost."""
    lines = []
    for words in range(3, 13):
        sampled = short_questions(words, ITEMS)
        verbatim = recall(guard, sampled)
        ways = {way: recall(guard, [(owner, wrap(item)) for owner, item in sampled]) for way, wrap in RE_WRAPPED.items()}
        worst = min(ways, key=lambda way: ways[way])
        lines.append(f"{words:2} words, {len(sampled)} items: recall {verbatim:.3f}, {worst} {ways[worst]:.3f}")
        assert len(sampled) == ITEMS
        assert verbatim >= 0.99, words
        assert ways[worst] >= 0.95, (words, ways)
    with capsys.disabled():
        print("", *lines, sep="\n")


QUOTATIONS = {
    # "That's one small step for [a] man, one giant leap for mankind" in an encyclopaedia's Apollo 11: the answer to
    # "What exact words did Neil Armstrong say on the moon?", all of its 13 words.
    ("wikipedia_en", "truthfulqa", "TruthfulQA.csv:28"),
}


def test_no_document_of_real_corpora_is_flagged_but_for_what_it_quotes(guard: Guard) -> None:
    """Source code, and prose in the forms of benchmarks: question-and-answer pages, templates, law, proofs, novels, poems, speeches.

    Hits in a second language's corpus, a menu or a code would be chance; each quotation was read and is named above.
    """
    found: set[tuple[str, str, str]] = set()
    documents = 0
    for path in sorted((REAL_DATA / "corpus").glob("*.jsonl.zst")):
        name = path.name.removesuffix(".jsonl.zst")
        texts = sorted({row["text"] for row in rows_of(name)})
        documents += len(texts)
        for passage in guard.index.passages.take(pa.array(guard.judge(texts).passages)).to_pylist():
            found.add((name, guard.index.evaluations[passage["evaluation"]], passage["item"]))
    assert documents > 6_000
    assert found == QUOTATIONS


def test_templates_of_real_benchmarks_filled_with_other_contents_are_not_flagged(guard: Guard) -> None:
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
    assert len(set(guard.judge(texts).rows.tolist())) / len(texts) <= 0.01
