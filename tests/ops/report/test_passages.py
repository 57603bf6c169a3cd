"""Excerpts and their marks: where the reason stands, what two texts share."""

from hypothesis import given
from hypothesis import strategies as st

from ops.report.passages import Passage, around, find_words, side_by_side


def marked(passage: Passage, kind: str) -> list[str]:
    return [passage.text[mark.start : mark.end] for mark in passage.marks if mark.kind == kind]


def test_the_reason_is_marked_where_it_stands_in_characters_not_bytes():
    text = "Straße " * 200 + "What is the capital of Peru?" + " süß" * 200
    start = text.encode().index(b"What")
    passage = around(text, [(start, start + 28)], 400)
    assert marked(passage, "reason") == ["What is the capital of Peru?"]
    assert len(passage.text) == 400
    assert passage.text.startswith("Straße "), "it begins with a whole word"
    assert text[passage.offset : passage.offset + 400] == passage.text


def test_words_are_found_whatever_white_space_parts_them():
    text = "Größe:\n  what is\u00a0the\n\n capital (of) Peru? And more"
    [(start, end)] = find_words(" what is the capital (of) Peru?", text)
    assert text.encode()[start:end].decode() == "what is\u00a0the\n\n capital (of) Peru?"
    assert find_words("what was", text) == find_words("  ", text) == []


def test_words_that_only_one_text_has_are_told_from_shared_ones():
    one, two = side_by_side("the tide comes in at noon today", "the tide goes out at noon", 1000)
    assert marked(one, "shared") == ["the tide", "at noon"]
    assert marked(one, "only") == ["comes in", "today"]
    assert marked(two, "only") == ["goes out"]


def test_two_long_texts_are_shown_where_they_first_differ():
    same = "word " * 5000
    one, two = side_by_side(f"{same}noon today{same}", f"{same}dusk today{same}", 300)
    assert marked(one, "only") == ["noon"]
    assert marked(two, "only") == ["dusk"]
    assert one.offset == two.offset > 20_000
    assert marked(one, "shared")[0].startswith("word word")


def test_words_at_the_end_of_an_excerpt_are_compared_with_what_the_other_text_goes_on_with():
    words = " ".join(f"word{n}" for n in range(40))
    one, two = side_by_side(words, f"a title of four {words}", 100)
    assert (len(one.text), len(two.text)) == (100, 100)
    assert words[100].isalnum(), "a word is cut in two"
    assert marked(one, "only") == []
    assert marked(two, "only") == ["a title of four"]


@given(st.text(max_size=80), st.lists(st.tuples(st.integers(-5, 200), st.integers(-5, 200)), max_size=5), st.integers(1, 60))
def test_marks_are_ascending_disjoint_and_inside_whatever_the_spans(text: str, spans: list[tuple[int, int]], chars: int):
    passage = around(text, spans, chars)
    assert text[passage.offset : passage.offset + len(passage.text)] == passage.text
    ends = [0, *(end for mark in passage.marks for end in (mark.start, mark.end)), len(passage.text)]
    assert ends == sorted(ends)


@given(st.text(max_size=120, alphabet="ab \n"), st.text(max_size=120, alphabet="ab \n"))
def test_shared_words_are_the_same_on_both_sides(one: str, two: str):
    left, right = side_by_side(one, two, 120)
    words = [[word for part in marked(side, "shared") for word in part.split()] for side in (left, right)]
    assert words[0] == words[1]
    everything = [word for mark in left.marks for word in left.text[mark.start : mark.end].split()]
    assert everything == left.text.split()
    assert one[left.offset : left.offset + len(left.text)] == left.text
