# mypy: allow-untyped-defs, allow-untyped-calls
"""What is repeated in a text: n-grams of words, lines, paragraphs; compiled. Sources: see `ops.rules.verdicts`."""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.kernels import window_hashes
from ops.hashing.rule_words import hash_of

_ONE = np.uint64(1)
_EMPTY = np.uint64(0)
_NEWLINE = np.uint32(10)


@kernel
def cleared(keys, count):
    """Room for `count` hashes at no more than half load; returns the mask of the part in use."""
    slots = 16
    while slots < 2 * count:
        slots *= 2
    keys[:slots] = _EMPTY
    return np.uint64(slots - 1)


@kernel
def slot_of(keys, mask, value):
    """Where a hash stands in an open-addressing set, or would: then `keys` is 0 there."""
    slot = value & mask
    while keys[slot] != _EMPTY and keys[slot] != value:
        slot = (slot + _ONE) & mask
    return slot


@kernel
def came_before(keys, mask, value):
    """Put a hash into the set; true if it was there."""
    value = max(value, _ONE)
    slot = slot_of(keys, mask, value)
    if keys[slot] == value:
        return True
    keys[slot] = value
    return False


@kernel
def top_ngram_chars(hashes, ends, words, width, windows, keys, counts, firsts):
    """Characters of the most frequent n-gram's occurrences, its spaces counted; the first to occur where several tie."""
    if words < width:
        return 0
    found = window_hashes(hashes, words, width, windows)
    mask = cleared(keys, found)
    best, most = 0, 0
    for i in range(found):
        value = max(windows[i], _ONE)
        slot = slot_of(keys, mask, value)
        if keys[slot] == _EMPTY:
            keys[slot], counts[slot], firsts[slot] = value, 0, i
        counts[slot] += 1
        if counts[slot] > most or (counts[slot] == most and firsts[slot] < best):
            most, best = counts[slot], firsts[slot]
    return most * (ends[best + width] - ends[best] + width - 1)


@kernel
def repeated_ngram_chars(hashes, ends, words, width, windows, keys):
    """Characters in n-grams that came before, counted without overlap from left to right; spaces not counted."""
    if words < width:
        return 0
    found = window_hashes(hashes, words, width, windows)
    mask = cleared(keys, found)
    chars = at = 0
    while at < found:
        if came_before(keys, mask, windows[at]):
            chars += ends[at + width] - ends[at]
            at += width
        else:
            at += 1
    return chars


@kernel
def count_parts(codes, start, stop, least_newlines, keys, out):
    """Split at runs of at least `least_newlines` newlines; out: parts, those that came before, and their characters."""
    parts = 0
    mask = cleared(keys, (stop - start) // least_newlines + 2)
    begin = at = start
    out[0] = out[1] = out[2] = 0
    while True:
        end = at
        while end < stop and codes[end] == _NEWLINE:
            end += 1
        if at < stop and end - at < least_newlines:
            at = end if end > at else at + 1
            continue
        if at == stop or end - at >= least_newlines:
            parts += 1
            if came_before(keys, mask, hash_of(codes, begin, at)):
                out[1] += 1
                out[2] += at - begin
            if at == stop:
                out[0] = parts
                return
            begin = at = end
            if at == stop:
                parts += 1  # the empty part behind the last newlines
                out[1] += came_before(keys, mask, hash_of(codes, stop, stop))
                out[0] = parts
                return
