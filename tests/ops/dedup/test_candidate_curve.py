"""How often MinHash proposes a pair, against the formula 1 - (1 - s**rows)**bands, with the signatures as they are used.

The similarity is that of the pair's character 5-grams, counted with Python sets on texts that `definition.cleaned` leaves as they
are; no kernel has a part in it.
"""

import math
import random

import numpy as np
import pyarrow as pa
import pytest

from ops.dedup.config import MinhashConfig
from ops.dedup.minhash import Hasher
from ops.hashing import definition
from ops.hashing.columns import TextColumn

PAIRS = 5_000
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
CONFIG = MinhashConfig()


def shingles(text: str) -> set[str]:
    return {text[i : i + 5] for i in range(len(text) - 4)}


def planted_pair(rng: random.Random, edits: int) -> tuple[str, str]:
    """220 random characters, and the same with so many of them replaced: few enough to count, new ones for each pair."""
    one = rng.choices(ALPHABET, k=220)
    other = list(one)
    for place in rng.sample(range(220), edits):
        other[place] = rng.choice(ALPHABET)
    return "".join(one), "".join(other)


@pytest.mark.parametrize("edits", [3, 5, 7, 9, 12, 16])
def test_pairs_are_proposed_within_two_percent_of_the_formula(edits: int) -> None:
    rng = random.Random(edits)
    pairs = [planted_pair(rng, edits) for _ in range(PAIRS)]
    assert definition.cleaned(pairs[0][0], 500_000) == pairs[0][0]  # so nothing is left to clean
    similarities = np.array([len(a & b) / len(a | b) for a, b in ((shingles(one), shingles(other)) for one, other in pairs)])
    hasher = Hasher(CONFIG)
    left, right = (hasher.buckets(TextColumn.of(pa.array(side)))[0] for side in zip(*pairs, strict=True))
    proposed = (left == right).any(axis=1).mean()
    expected = (1 - (1 - similarities**CONFIG.band_rows) ** CONFIG.num_bands).mean()
    assert 0.4 < similarities.mean() < 0.95
    # The seeds are fixed. By chance alone three standard errors of 5,000 pairs are at most 0.021, where the curve is steepest.
    error = math.sqrt(expected * (1 - expected) / PAIRS)
    assert abs(proposed - expected) <= min(0.02, 3 * error + 0.001)
