"""The hashes of the data plane, defined in plain Python: short, slow, and the truth the kernels are tested against.

- `mix64` is the SplitMix64 finalizer (Steele et al. 2014), a bijection on 64 bits.
- A word's hash is FNV-1a over its code points, mixed. A character's hash is its code point, mixed.
- A window of units u_0..u_{n-1} hashes to mix64(sum of u_i * BASE**(n-1-i) + n), all modulo 2**64, so it rolls.
- MinHash permutation p sends the upper 32 bits x of a shingle's hash to (a_p * x + b_p) mod 2**32, a_p odd
  (multiply-shift, Dietzfelbinger et al. 1997); the coefficients are one SplitMix64 stream from the seed.
- A bucket is the chain h = mix64(h ^ value) over one band's minima, begun at mix64(band + 1): equal minima in
  different bands are different buckets.
"""

import string
from collections.abc import Callable, Iterator, Sequence

MASK64 = (1 << 64) - 1
MASK32 = (1 << 32) - 1
GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
BASE = 0xD6E8FEB86659FD93  # odd, and without structure a text could line up with


def mix64(value: int) -> int:
    value = (value ^ (value >> 30)) * MIX_1 & MASK64
    value = (value ^ (value >> 27)) * MIX_2 & MASK64
    return value ^ (value >> 31)


def split_mix(seed: int) -> Iterator[int]:
    """SplitMix64: an endless stream of 64-bit values."""
    state = seed & MASK64
    while True:
        state = (state + GOLDEN) & MASK64
        yield mix64(state)


def word_hash(word: str) -> int:
    value = FNV_OFFSET
    for character in word:
        value = (value ^ ord(character)) * FNV_PRIME & MASK64
    return mix64(value)


def window_hash(units: Sequence[int]) -> int:
    value = 0
    for unit in units:
        value = (value * BASE + unit) & MASK64
    return mix64((value + len(units)) & MASK64)


def windows(units: Sequence[int], width: int) -> list[int]:
    """Hashes of all windows of `width` units; of the whole where there are fewer; none of nothing."""
    if not units:
        return []
    return [window_hash(units[i : i + width]) for i in range(max(1, len(units) - width + 1))]


def folded(text: str, max_chars: int, *, dropped: str = "") -> str:
    """Lower case by character, without the `dropped` characters, white space collapsed and trimmed, cut to `max_chars`."""
    lowered = (c.lower() if len(c.lower()) == 1 else c for c in text if c not in dropped)
    return " ".join("".join(lowered).split())[:max_chars].rstrip(" ")


def cleaned(text: str, max_chars: int) -> str:
    """What MinHash sees: folded, without ASCII punctuation."""
    return folded(text, max_chars, dropped=string.punctuation)


def char_units(text: str) -> list[int]:
    return [mix64(ord(character)) for character in text]


def word_units(text: str) -> list[int]:
    return [word_hash(word) for word in text.split()]


def permutations(seed: int, count: int) -> list[tuple[int, int]]:
    """`count` pairs (odd multiplier, addend), 32 bits each."""
    stream = split_mix(seed)
    return [((next(stream) & MASK32) | 1, next(stream) & MASK32) for _ in range(count)]


def buckets(text: str, units: Callable[[str], list[int]], width: int, max_chars: int, seed: int, bands: int, rows: int) -> list[int]:
    """The LSH buckets of a text; none when nothing is left after cleaning."""
    shingles = windows(units(cleaned(text, max_chars)), width)
    if not shingles:
        return []
    minima = [min((a * (shingle >> 32) + b) & MASK32 for shingle in shingles) for a, b in permutations(seed, bands * rows)]
    found = []
    for band in range(bands):
        value = mix64(band + 1)
        for minimum in minima[band * rows : (band + 1) * rows]:
            value = mix64(value ^ minimum)
        found.append(value)
    return found
