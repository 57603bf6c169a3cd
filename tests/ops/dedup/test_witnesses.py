"""Neighbours in a cluster, and whom they side with, against plain Python."""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ops.dedup.witnesses import WINDOW, Continuations, share_that_sides, with_neighbours


@dataclass(frozen=True)
class Numbered:
    number: int
    text: bytes = b"x"


def follow(text: str) -> dict[tuple[str, ...], set[str]]:
    words = text.lower().split()
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for i in range(len(words) - 3):
        found["after", *words[i : i + 3]].add(words[i + 3])
        found["before", *words[i + 1 : i + 4]].add(words[i])
    return found


def of(text: str) -> Continuations:
    return Continuations.of(text.encode(), by_word=True)


def test_siding_agrees_with_dictionaries() -> None:
    rng = random.Random(2)
    seen = set()
    for _ in range(300):
        one, other, *thirds = (" ".join(rng.choices(["a", "b", "C"], k=rng.randint(0, 40))) for _ in range(rng.randint(2, 5)))
        known = agreeing = 0
        a, b = follow(one), follow(other)
        for third in map(follow, thirds):
            for context in a.keys() & b.keys() & third.keys():
                if a[context] - b[context]:
                    known += 1
                    agreeing += bool(third[context] & (a[context] | b[context]))
        expected = agreeing / known if known else None
        assert share_that_sides(of(one), of(other), map(of, thirds)) == expected
        seen.add(expected)
    assert len(seen) > 10


def test_a_third_version_sides_and_a_third_filling_does_not() -> None:
    text = "and so we the {} met at noon on the {} day of the month and signed it"
    one, other = text.format("people", "first"), text.format("states", "first")
    assert share_that_sides(of(one), of(other), [of(text.format("people", "second"))]) == 1.0
    assert share_that_sides(of(one), of(other), [of("quite another text of these words")]) is None
    pages = [f"and now for the {word} we have a price that is low" for word in ("tea", "rice", "salt")]
    assert share_that_sides(of(pages[0]), of(pages[1]), [of(pages[2])]) == 0.0


def test_fillings_that_begin_alike_part_where_they_end() -> None:
    pages = [f"and now for the red {word} we have a price" for word in ("tea", "rice")] + ["and now for the old salt we have a price"]
    assert share_that_sides(of(pages[0]), of(pages[1]), [of(pages[2])]) == 0.0


def test_scripts_without_spaces_part_by_characters() -> None:
    one, other, third = (f"本合同由甲方与乙方于{day}签订并立即生效".encode() for day in ("周一", "三月", "昨天"))
    sides = [Continuations.of(text, by_word=False) for text in (one, other, third)]
    assert share_that_sides(sides[0], sides[1], [sides[2]]) == 0.0
    assert share_that_sides(sides[0], sides[1], [sides[0]]) == 1.0


@pytest.mark.parametrize("text", ["", " ", "a", "a b c"])
def test_a_text_too_short_to_part_says_nothing(text: str) -> None:
    assert share_that_sides(of(text), of("a b c d"), [of("a b c e")]) is None


def test_neighbours_are_those_around_a_member_nearest_first() -> None:
    members = [Numbered(n) for n in range(60)]
    found = {member.number: [other.number for other in others] for member, others in with_neighbours(iter(members))}
    assert list(found) == list(range(60))
    assert found[0] == list(range(1, WINDOW + 1))
    assert found[30][:6] == [29, 31, 28, 32, 27, 33]
    assert sorted(found[30]) == [n for n in range(30 - WINDOW, 31 + WINDOW) if n != 30]
    assert found[59] == list(range(58, 58 - WINDOW, -1))


def test_large_members_are_not_read_far_ahead() -> None:
    read: list[int] = []

    def members() -> Iterator[Numbered]:
        for n in range(10):
            read.append(n)
            yield Numbered(n, b"x" * 9_000_000)

    first, others = next(with_neighbours(members()))
    assert (first.number, [other.number for other in others], read) == (0, [1], [0, 1])
