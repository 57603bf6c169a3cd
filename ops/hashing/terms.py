# mypy: allow-untyped-defs, allow-untyped-calls
"""Texts as counts of hashed terms: words and pairs of words, or pairs and triples of characters where words are long; compiled."""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.kernels import char_units, fold_text, mix64, window_hashes, word_units

_LONG_WORDS = 10  # characters a word, on average: from here on words say little (Chinese, Thai)
_SHORTER, _LONGER, _ALL = np.uint64(1), np.uint64(2), np.uint64(64)


@kernel
def column_terms(data, offsets, folding, max_chars, bits):
    """The terms of every row.

    Args:
        folding: code points to code points; what it drops is in no term.
        max_chars: read from the beginning of each text.
        bits: a term's slot is so many upper bits of its hash.

    Returns:
        slots, counts: row after row, slots ascending; and [rows + 1] offsets into both.
    """
    rows = offsets.size - 1
    room = 1
    for row in range(rows):
        room = max(room, min(max_chars, offsets[row + 1] - offsets[row]))
    codes, units, windows = np.empty(room, np.uint32), np.empty(room, np.uint64), np.empty(room, np.uint64)
    terms = np.empty(2 * room, np.int64)
    slots, counts = np.empty(256, np.int64), np.empty(256, np.int64)
    starts = np.zeros(rows + 1, np.int64)
    shift = _ALL - np.uint64(bits)
    for row in range(rows):
        chars = fold_text(data, offsets[row], offsets[row + 1], folding, codes[: min(max_chars, room)])
        count = word_units(codes, chars, units)
        by_word = chars <= _LONG_WORDS * count
        if not by_word:
            count = char_units(codes, chars, units)
        found = 0
        for i in range(count if by_word else max(0, count - 1)):
            unit = units[i] if by_word else units[i] * np.uint64(3) + units[i + 1]
            terms[found] = np.int64(mix64(unit + _SHORTER) >> shift)
            found += 1
        width = 2 if by_word else 3
        if count >= width:
            for i in range(window_hashes(units, count, width, windows)):
                terms[found] = np.int64(mix64(windows[i] + _LONGER) >> shift)
                found += 1
        total = starts[row]
        if total + found > slots.size:
            wider, wider_counts = np.empty(2 * (total + found), np.int64), np.empty(2 * (total + found), np.int64)
            wider[:total], wider_counts[:total] = slots[:total], counts[:total]
            slots, counts = wider, wider_counts
        ordered = np.sort(terms[:found])
        for i in range(found):
            if i and ordered[i] == ordered[i - 1]:
                counts[total - 1] += 1
            else:
                slots[total], counts[total] = ordered[i], 1
                total += 1
        starts[row + 1] = total
    return slots[: starts[rows]], counts[: starts[rows]], starts


@kernel
def project_terms(slots, counts, starts, weights, dims, parts, seed, limit, out):
    """Random projections of weighted terms, of length one, in steps of `limit` / 127.

    Args:
        weights: [slots] what a term weighs; a text's term counts with the root of its number.
        dims: of the projection. parts: dimensions that a term goes to, with a sign each.
        out: [rows, dims] int8, filled here; zero where a text has no terms.
    """
    vector = np.empty(dims, np.float64)
    for row in range(starts.size - 1):
        vector[:] = 0.0
        for i in range(starts[row], starts[row + 1]):
            value = np.sqrt(np.float64(counts[i])) * weights[slots[i]]
            draw = mix64(np.uint64(slots[i]) * np.uint64(parts) + np.uint64(seed))
            for _ in range(parts):
                draw = mix64(draw)
                at = np.int64((draw >> np.uint64(1)) % np.uint64(dims))
                vector[at] += value if draw & np.uint64(1) else -value
        norm = 0.0
        for d in range(dims):
            norm += vector[d] * vector[d]
        if norm == 0.0:
            out[row] = 0
            continue
        scale = 127.0 / (limit * np.sqrt(norm))
        for d in range(dims):
            out[row, d] = np.int8(max(-127.0, min(127.0, np.rint(vector[d] * scale))))
