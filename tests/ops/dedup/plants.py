"""Planted near-duplicates and templates, made of the words of a small vocabulary."""

import random
from collections.abc import Callable, Mapping

WORDS = ["".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=random.Random(n).randint(2, 10))) for n in range(4_000)]


def prose(rng: random.Random, words: int) -> str:
    """Sentences of random words."""
    sentences = []
    while words > 0:
        size = min(words, rng.randint(5, 20))
        sentences.append(" ".join(rng.choices(WORDS, k=size)).capitalize() + ".")
        words -= size
    return " ".join(sentences)


def char_jaccard(one: str, other: str) -> float:
    """Of the sets of character 5-grams of the cleaned texts: what MinHash estimates."""
    a, b = (_shingles(text) for text in (one, other))
    return len(a & b) / len(a | b)


def _shingles(text: str) -> set[str]:
    kept = " ".join("".join(c for c in text.lower() if c.isalnum() or c.isspace()).split())
    return {kept[i : i + 5] for i in range(max(1, len(kept) - 4))}


def _replaced(rng: random.Random, text: str, share: float) -> str:
    return " ".join(rng.choice(WORDS) if rng.random() < share else word for word in text.split())


def _dropped(rng: random.Random, text: str, share: float) -> str:
    return " ".join(word for word in text.split() if rng.random() >= share)


def _inserted(rng: random.Random, text: str, share: float) -> str:
    return " ".join(f"{word} {rng.choice(WORDS)}" if rng.random() < share else word for word in text.split())


def _mistyped(rng: random.Random, text: str, share: float) -> str:
    def typed(word: str) -> str:
        at = rng.randrange(len(word))
        return word[:at] + rng.choice("abcdefghijklmnopqrstuvwxyz") + word[at + 1 :]

    return " ".join(typed(word) if rng.random() < share else word for word in text.split())


def _cut(rng: random.Random, text: str, share: float) -> str:
    words = text.split()
    return " ".join(words[int(share * len(words)) :])


EDITS: Mapping[str, Callable[[random.Random, str, float], str]] = {
    "replaced words": _replaced,
    "dropped words": _dropped,
    "inserted words": _inserted,
    "mistyped words": _mistyped,
    "cut at the beginning": _cut,
}


def near_copy(rng: random.Random, text: str, edit: str, least: float) -> str:
    """The text with as much of one kind of edit as keeps its character Jaccard at `least` or above."""
    for share in (0.03, 0.025, 0.02, 0.015, 0.01, 0.007, 0.004):
        copy = EDITS[edit](rng, text, share * (3 if edit == "cut at the beginning" else 1))
        if copy != text and char_jaccard(text, copy) >= least:
            return copy
    return text + " end"


def fillings(rng: random.Random, words: int, slots: int, slot_words: int, count: int) -> list[str]:
    """One template of so many words with `slots` places, filled `count` times with other words each."""
    fixed = [prose(rng, max(1, words // (slots + 1))) for _ in range(slots + 1)]
    found = []
    for _ in range(count):
        parts = [fixed[0]]
        for part in fixed[1:]:
            parts += [" ".join(rng.choices(WORDS, k=slot_words)), part]
        found.append(" ".join(parts))
    return found
