# mypy: allow-untyped-defs, allow-untyped-calls
"""Paragraphs of texts as spans of bytes, each with 128 bits of hash; compiled."""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.kernels import mix64

_NEWLINE, _SPACE, _CONTINUED, _LEAD = 0x0A, 0x20, 0x80, 0xC0
_SEED_HIGH, _SEED_LOW, _ODD = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344), np.uint64(0x9E3779B97F4A7C15)
_EIGHT = np.uint64(8)


@kernel
def hash_bytes(data, start, stop):
    """Two hashes of the bytes, of chains of their own: equal ones mean equal bytes, but for 1 pair in 2**128."""
    high, low = mix64(_SEED_HIGH ^ np.uint64(stop - start)), mix64(_SEED_LOW + np.uint64(stop - start))
    at = start
    while at < stop:
        word = np.uint64(0)
        for i in range(at, min(at + 8, stop)):
            word = word << _EIGHT | np.uint64(data[i])
        high = mix64(high ^ word)
        low = mix64(low * _ODD + word)
        at += 8
    return high, low


@kernel
def _paragraph_end(data, at, stop, by_line):
    """Past the newline that ends the paragraph at `at`, and, of blocks, past the blank lines after it."""
    while at < stop:
        while at < stop and data[at] != _NEWLINE:
            at += 1
        at += at < stop
        if by_line:
            return at
        end, blank = at, False
        while end < stop and data[end] <= _SPACE:
            blank |= data[end] == _NEWLINE
            end += 1
            if data[end - 1] == _NEWLINE:
                at = end
        if blank:
            return at
    return stop


@kernel
def column_blocks(data, offsets, by_line, min_chars):
    """The paragraphs of every row that have at least `min_chars` characters between their outer white space.

    Args:
        by_line: a paragraph is a line if true; else what blank lines part.

    Returns:
        [paragraphs] arrays: the row; bytes of the row from and to (with the line ends after it); high and low hash of what
        is between the outer white space; characters of that.
    """
    room = 64
    for row in range(offsets.size - 1):
        room += (offsets[row + 1] - offsets[row]) // max(1, min_chars) + 1
    rows, starts, ends = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    high, low, sizes = np.empty(room, np.uint64), np.empty(room, np.uint64), np.empty(room, np.int64)
    found = 0
    for row in range(offsets.size - 1):
        base, stop = offsets[row], offsets[row + 1]
        at = base
        while at < stop:
            end = _paragraph_end(data, at, stop, by_line)
            first, last = at, end
            while first < last and data[first] <= _SPACE:
                first += 1
            while last > first and data[last - 1] <= _SPACE:
                last -= 1
            chars = 0
            for i in range(first, last):
                chars += data[i] & _LEAD != _CONTINUED
            if chars >= min_chars:
                rows[found], starts[found], ends[found], sizes[found] = row, at - base, end - base, chars
                high[found], low[found] = hash_bytes(data, first, last)
                found += 1
            at = end
    return rows[:found], starts[:found], ends[:found], high[:found], low[:found], sizes[:found]
