"""Documents that are nearly alike: ordinary ones, one text in a hundred thousand punctuations, and very long ones."""

import numpy as np

from ops.units import MiB

WORDS = np.array(["".join(letters) for letters in np.random.default_rng(0).choice(list("abcdefghijklmnopqrstuvwxyz"), (20_000, 6))])
MEAN_WORDS = 350  # 2.4 kB


def _text(random: np.random.Generator, words: int) -> list[str]:
    found: list[str] = random.choice(WORDS, words).tolist()
    return found


def near(index: int, mib: float) -> list[str]:
    """`mib` of documents, of which every fifth is another with a word in a hundred replaced."""
    random = np.random.default_rng(index)
    texts: list[str] = []
    for _ in range(int(mib * MiB / 7 / MEAN_WORDS / 5)):
        found = [_text(random, int(words)) for words in random.lognormal(5.6, 0.7, 4) + 20]
        texts += map(" ".join, found)
        texts.append(" ".join(word if draw > 0.01 else "edited" for word, draw in zip(found[0], random.random(len(found[0])), strict=True)))
    return texts


def hot(count: int) -> list[str]:
    """One text in so many punctuations, which share every bucket, and as many texts that have no partner."""
    random = np.random.default_rng(count)
    same = _text(random, 60)
    marked = [" ".join(f"{word}{',.'[n >> place & 1]}" for place, word in enumerate(same)) for n in range(count)]
    return marked + [" ".join(_text(random, 60)) for _ in range(count)]


def long(first: int, count: int, megabytes: float) -> list[str]:
    """Documents of `megabytes`, alike but for a thousand words each."""
    shared = _text(np.random.default_rng(0), int(megabytes * 1e6 / 7))
    return [" ".join(_text(np.random.default_rng(n), 1_000) + shared) for n in range(first, first + count)]


def tiny(count: int) -> list[str]:
    """Documents of a word or two, of which many are alike."""
    return [f"{WORDS[n % len(WORDS)]} {n // len(WORDS)}" for n in range(count)]
