"""The part of a text that is shown, and what is marked in it: where an evaluation's text stands, what two texts share."""

import re
from collections import deque
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

Kind = Literal["reason", "shared", "only"]
WORD = re.compile(r"\S+")
CONTEXT_WORDS = 24  # shown before the first difference: two lines


@dataclass(frozen=True)
class Mark:
    """Characters [start, end) of a passage: the `reason` of a removal, words `shared` with the text beside, or `only` here."""

    start: int
    end: int
    kind: Kind


@dataclass(frozen=True)
class Passage:
    """Characters [offset, offset + len(text)) of a document of `chars` characters. Marks are ascending and disjoint."""

    text: str
    offset: int
    chars: int
    marks: tuple[Mark, ...] = ()


def beginning(text: str, chars: int) -> Passage:
    """The first characters of a text."""
    return Passage(text[:chars], 0, len(text))


def around(text: str, spans: list[tuple[int, int]], chars: int) -> Passage:
    """The part of a text where the first span begins, with all spans marked as the reason.

    Args:
        spans: byte ranges of the text's UTF-8, as the stages give them; what is not inside the text is cut off.
    """
    places = sorted((_chars_before(text, start), _chars_before(text, end)) for start, end in spans)
    offset = _word_after(text, places[0][0] - chars // 4, places[0][0]) if places else 0
    shown = text[offset : offset + chars]
    marks: list[Mark] = []
    for start, end in places:
        start, end = max(start - offset, 0), min(end - offset, len(shown))
        if marks and start <= marks[-1].end:  # spans may overlap, or stand twice for two evaluations
            marks[-1] = Mark(marks[-1].start, max(end, marks[-1].end), "reason")
        elif start < end:
            marks.append(Mark(start, end, "reason"))
    return Passage(shown, offset, len(text), tuple(marks))


def find_words(words: str, text: str) -> list[tuple[int, int]]:
    """Where the words first stand in a text in a row, whatever white space parts them: a byte range, or none."""
    pattern = r"\s+".join(map(re.escape, words.split()))
    found = re.search(pattern, text) if pattern else None
    return [(len(text[: found.start()].encode()), len(text[: found.end()].encode()))] if found else []


def side_by_side(removed: str, kept: str, chars: int) -> tuple[Passage, Passage]:
    """The parts of two texts where they first differ, with the words marked that they share, and those that one has alone."""
    start_one, start_two = _before_the_difference(removed, kept, chars)
    read = 2 * chars  # so that the last words shown are compared with what the other text goes on with
    one, two = removed[start_one : start_one + read], kept[start_two : start_two + read]
    words_one, words_two = list(WORD.finditer(one)), list(WORD.finditer(two))
    matcher = SequenceMatcher(None, [word[0] for word in words_one], [word[0] for word in words_two], autojunk=False)
    same_one, same_two = [False] * len(words_one), [False] * len(words_two)
    for at_one, at_two, size in matcher.get_matching_blocks():
        same_one[at_one : at_one + size] = [True] * size
        same_two[at_two : at_two + size] = [True] * size
    return (
        _shown(removed, start_one, chars, _runs(words_one, same_one)),
        _shown(kept, start_two, chars, _runs(words_two, same_two)),
    )


def _shown(text: str, offset: int, chars: int, marks: tuple[Mark, ...]) -> Passage:
    """A passage of `chars` characters, with as much of the marks as lies in it."""
    shown = text[offset : offset + chars]
    inside = (Mark(mark.start, min(mark.end, len(shown)), mark.kind) for mark in marks if mark.start < len(shown))
    return Passage(shown, offset, len(text), tuple(inside))


def _before_the_difference(one: str, two: str, chars: int) -> tuple[int, int]:
    """Where to begin: at the texts' beginnings, or some words before the first that differs if that would not be shown."""
    recent: deque[tuple[int, int]] = deque([(0, 0)], maxlen=CONTEXT_WORDS)
    for word_one, word_two in zip(WORD.finditer(one), WORD.finditer(two), strict=False):
        if word_one[0] != word_two[0]:
            return recent[0] if word_one.end() > chars or word_two.end() > chars else (0, 0)
        recent.append((word_one.start(), word_two.start()))
    return 0, 0  # one text is the other's beginning


def _runs(words: list[re.Match[str]], same: list[bool]) -> tuple[Mark, ...]:
    """Neighbouring words of one kind as one mark, the blanks between them included."""
    marks: list[Mark] = []
    for word, is_same in zip(words, same, strict=True):
        kind: Kind = "shared" if is_same else "only"
        if marks and marks[-1].kind == kind:
            marks[-1] = Mark(marks[-1].start, word.end(), kind)
        else:
            marks.append(Mark(word.start(), word.end(), kind))
    return tuple(marks)


def _word_after(text: str, start: int, end: int) -> int:
    """Where the first whole word of [start, end) begins; `start` if there is none."""
    if start <= 0:
        return 0
    found = re.compile(r"\s\S").search(text, start - 1, end)
    return found.start() + 1 if found else start


def _chars_before(text: str, byte: int) -> int:
    """How many characters begin before a byte of the text's UTF-8."""
    return len(text.encode()[: max(byte, 0)].decode(errors="ignore"))
