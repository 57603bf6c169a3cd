"""The task that is made of held-out documents: its answers are true by construction, and nothing moves unless its own text does."""

import random

import pytest

from infra.archive.records import escape
from ops.evaluation.config import TaskItemsConfig
from ops.evaluation.perplexity.slices import TextDocument
from ops.evaluation.tasks.continuations import items_of_domain, passages, task_of

CONFIG = TaskItemsConfig(items_per_domain=5, context_characters=40, choice_characters=20)


def documents(count: int, *, seed: int = 3, words: int = 60) -> list[TextDocument]:
    rng = random.Random(seed)
    return [TextDocument(f"d-{n:05d}", " ".join(f"w{rng.randrange(9999)}" for _ in range(words))) for n in range(count)]


def test_the_right_answer_stands_in_the_document_behind_its_context_and_no_other_choice_does():
    texts = {one.name: one.text for one in documents(4)}
    items = list(items_of_domain(CONFIG, "prose", documents(4)))
    assert len(items) == 5
    for item in items:
        name, _, start = str(item["id"]).partition("@")
        choices = item["choices"]
        assert isinstance(choices, list)
        assert isinstance(item["gold"], int)
        whole = f"{item['context']} {choices[item['gold']]}"
        assert texts[name].startswith(whole, int(start))
        assert sum(f"{item['context']} {choice}" in texts[name] for choice in choices) == 1
        assert len(set(choices)) == CONFIG.choices


def test_items_come_from_as_many_documents_as_there_are_before_a_second_from_any():
    items = list(items_of_domain(CONFIG, "prose", documents(4)))
    names = [str(item["id"]).partition("@")[0] for item in items]
    assert len(set(names[:4])) == 4


def test_where_the_right_answer_stands_says_nothing():
    many = TaskItemsConfig(items_per_domain=400, context_characters=40, choice_characters=20)
    gold = [item["gold"] for item in items_of_domain(many, "prose", documents(80))]
    assert len(gold) == 400
    assert all(70 <= gold.count(place) <= 130 for place in range(4))  # 100 expected, deviation 8.7


def test_items_hang_on_the_seed_and_on_nothing_else():
    first = list(items_of_domain(CONFIG, "prose", documents(4)))
    assert list(items_of_domain(CONFIG, "prose", documents(4))) == first
    assert list(items_of_domain(CONFIG.model_copy(update={"seed": 1}), "prose", documents(4))) != first


def test_a_domain_without_passages_enough_has_no_item():
    assert list(items_of_domain(CONFIG, "prose", documents(1, words=20))) == []
    assert list(items_of_domain(CONFIG, "prose", [])) == []


@pytest.mark.parametrize(
    "text", ["", " ", "a" * 500, "\n".join(["line"] * 90), "\u2028 \u2029 \u0085 " * 60, "two  spaces  " * 30, "日本語の文章" * 40]
)
def test_a_text_without_one_space_between_two_words_is_left_alone_and_never_breaks(text: str):
    for one in passages(CONFIG, TextDocument("odd", text)):
        assert f"{one.context} {one.continuation}" in text


def test_a_text_with_an_unpaired_surrogate_is_escaped_before_it_is_cut():
    text = "word \ud800 🦆 and more words than that, " * 12
    found = list(passages(CONFIG, TextDocument("odd", text)))
    assert found
    assert all(f"{one.context} {one.continuation}" in escape(text) for one in found)


def test_the_task_is_one_that_both_engines_read():
    task = task_of(CONFIG)
    assert (task.output_type, task.headline, task.id_field) == ("multiple_choice", "acc_norm", "id")
