# mypy: allow-untyped-defs, allow-untyped-calls
"""Listed words and phrases in texts, in any case, with no letter or digit on either side; compiled."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.hashing.code_points import case_folding
from ops.hashing.compiled import kernel
from ops.hashing.definition import FNV_OFFSET, FNV_PRIME, word_hash
from ops.hashing.kernels import mix64, next_code_point
from ops.hashing.rule_tables import WORD

_FNV_OFFSET, _FNV_PRIME, _FIRSTS = np.uint64(FNV_OFFSET), np.uint64(FNV_PRIME), np.uint32(4095)


class Phrases(NamedTuple):
    """A list: what its phrases are, how they begin, how long they are.

    hashes: [phrases] uint64, ascending. firsts: [4096] bool, by the low bits of first code points. lengths: bool, by code points.
    """

    hashes: NDArray[np.uint64]
    firsts: NDArray[np.bool_]
    lengths: NDArray[np.bool_]


def phrases_of(listed: Sequence[str]) -> Phrases:
    """The list as the kernel looks it up; no phrase is empty."""
    folding = case_folding()
    folded = sorted({"".join(chr(folding[ord(character)]) for character in phrase) for phrase in listed})
    firsts, lengths = np.zeros(int(_FIRSTS) + 1, np.bool_), np.zeros(max(map(len, folded), default=0) + 1, np.bool_)
    firsts[[ord(phrase[0]) & int(_FIRSTS) for phrase in folded]] = True
    lengths[[len(phrase) for phrase in folded]] = True
    return Phrases(np.array(sorted(map(word_hash, folded)), np.uint64), firsts, lengths)


@kernel
def _is_in(hashes, value):
    low, high = 0, hashes.size
    while low < high:
        middle = (low + high) // 2
        if hashes[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < hashes.size and hashes[low] == value


@kernel
def count_phrases(data, offsets, table, folding, max_chars, phrases):
    """How often listed phrases stand in each row, [rows] int64; they may overlap.

    Args:
        table, folding: `rule_tables.character_bits()`, `code_points.case_folding()`.
        max_chars: read from the beginning of each text.
    """
    rows = offsets.size - 1
    longest = 0
    for row in range(rows):
        longest = max(longest, offsets[row + 1] - offsets[row])
    codes = np.empty(min(longest, max_chars), np.uint32)
    is_word = np.empty(codes.size + 1, np.bool_)
    found = np.zeros(rows, np.int64)
    for row in range(rows):
        chars, at = 0, offsets[row]
        while at < offsets[row + 1] and chars < codes.size:
            code, at = next_code_point(data, at, offsets[row + 1])
            codes[chars] = folding[code] if code < folding.size else code
            is_word[chars] = code < table.size and table[code] & WORD != 0
            chars += 1
        is_word[chars] = False
        for first in range(chars):
            if (first and is_word[first - 1]) or not phrases.firsts[codes[first] & _FIRSTS]:
                continue
            value = _FNV_OFFSET
            for end in range(first + 1, min(chars + 1, first + phrases.lengths.size)):
                value = (value ^ np.uint64(codes[end - 1])) * _FNV_PRIME
                if not is_word[end] and phrases.lengths[end - first] and _is_in(phrases.hashes, mix64(value)):
                    found[row] += 1
    return found
