# mypy: allow-untyped-defs, allow-untyped-calls
"""Passages of evaluations, and the look-up of their features; compiled.

A passage of `width` words or more has one feature for every window of `width`. A shorter one has a single feature,
the hash of all its words; it is found by its *head*, the hash of its first words, and then compared whole.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.hashing.compiled import kernel
from ops.hashing.definition import BASE
from ops.hashing.kernels import mix64, window_hashes
from ops.hashing.passage_words import HAS_LETTER, PARAGRAPH, scan_words

SHORT_HEAD, LONG_HEAD = 3, 8  # words of a head: a passage of fewer than 8 must stand between boundaries, others anywhere

FIRST = np.int64(0)  # for a literal 0 numba compiles every function once more
_BASE, _ONE, _LOW6 = np.uint64(BASE), np.uint64(1), np.uint64(63)
_SIX, _TWELVE = np.uint64(6), np.uint64(12)


class Lookup(NamedTuple):
    """A sorted index behind a Bloom filter of one memory access, which few words of most texts pass.

    features: [entries] uint64, ascending. prefixes: where the entries of each prefix (`feature >> shift`) begin, and
    the end. blocks: the filter; a feature sets three bits of the block `feature >> block_shift`. lengths: [entries]
    uint16; bit n says that the entry is the head of a passage of n words.

    Source: a Bloom filter in blocks, Putze et al. 2009, "Cache-, hash- and space-efficient Bloom filters".
    """

    features: NDArray[np.uint64]
    prefixes: NDArray[np.int64]
    shift: np.uint64
    blocks: NDArray[np.uint64]
    block_shift: np.uint64
    lengths: NDArray[np.uint16]


@kernel
def _mask(feature):
    return _ONE << (feature & _LOW6) | _ONE << (feature >> _SIX & _LOW6) | _ONE << (feature >> _TWELVE & _LOW6)


@kernel
def fill_filter(features, blocks, block_shift):
    """Set each feature's bits."""
    for feature in features:
        blocks[feature >> block_shift] |= _mask(feature)


@kernel
def candidates(lookup, hashes, count, out):
    """Places among the first `count` hashes of those that pass the filter, into `out`; returns how many."""
    kept = 0
    for i in range(count):
        mask = _mask(hashes[i])
        out[kept] = i
        kept += (lookup.blocks[hashes[i] >> lookup.block_shift] & mask) == mask  # no branch: the loads of many words overlap
    return kept


@kernel
def place_of(lookup, feature):
    """Where a feature stands in the index, or -1."""
    prefix = feature >> lookup.shift
    low, end = lookup.prefixes[prefix], lookup.prefixes[prefix + _ONE]
    high = end
    while low < high:
        middle = (low + high) // 2
        if lookup.features[middle] < feature:
            low = middle + 1
        else:
            high = middle
    return low if low < end and lookup.features[low] == feature else -1


@kernel
def hash_of(words, first, length):
    """The hash of `length` words from `first`, as `window_hashes` gives it."""
    value = np.uint64(0)
    for i in range(first, first + length):
        value = value * _BASE + words[i]
    return mix64(value + np.uint64(length))


@kernel
def _head_of(length):
    """Words of the head of a short passage."""
    return LONG_HEAD if length >= LONG_HEAD else min(SHORT_HEAD, length)


@kernel
def _has_letter(kinds, count):
    bits = 0
    for i in range(count):
        bits |= kinds[i]
    return bits & HAS_LETTER != 0


@kernel
def grown(array, filled):
    """A larger array with the first `filled` entries of this one."""
    wider = np.empty(2 * array.size + 64, array.dtype)
    copied(array, filled, wider, FIRST)
    return wider


@kernel
def copied(array, count, out, at):
    """Put the first `count` entries into `out` from `at` on. (An assigned slice compiles for seconds.)"""
    for i in range(count):
        out[at + i] = array[i]


@kernel
def room_for_words(offsets):
    """The most words a row can have: each needs a separator, or, in scripts without spaces, three bytes."""
    most = 0
    for row in range(offsets.size - 1):
        most = max(most, offsets[row + 1] - offsets[row])
    return most // 2 + 2


@kernel
def _lettered_windows(words, kinds, first, stop, width, windows, out):
    """Window hashes of words[first:stop] that hold a letter; returns how many."""
    found = window_hashes(words[first:stop], stop - first, width, windows)
    letters = kept = 0
    for i in range(first, first + width - 1):
        letters += kinds[i] & HAS_LETTER
    for i in range(found):
        letters += kinds[first + i + width - 1] & HAS_LETTER
        if letters:
            out[kept] = windows[i]
            kept += 1
        letters -= kinds[first + i] & HAS_LETTER
    return kept


@kernel
def column_passages(data, offsets, codes, width, least):
    """The passages of every row: its paragraphs of `width` words or more; where it has none, the whole text.

    Args:
        least: a text of fewer words is no passage.

    Returns:
        rows, words, heads: [passages] the row it is of, its words, the head of a short one (0 of others).
        features, starts: all features and [passages + 1] offsets into them.
    """
    rows = offsets.size - 1
    room = room_for_words(offsets)
    words, windows, kept = np.empty(room, np.uint64), np.empty(room, np.uint64), np.empty(room, np.uint64)
    first_bytes, last_bytes, kinds = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.uint8)
    features = np.empty(256, np.uint64)
    owner, size, head = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.uint64)
    starts = np.zeros(65, np.int64)
    passages = total = FIRST
    for row in range(rows):
        count = scan_words(data, offsets[row], offsets[row + 1], codes, words, first_bytes, last_bytes, kinds)
        first, has_long = FIRST, False
        for at in range(1, count + 2):
            is_whole = at == count + 1  # the last turn: the whole text, if no paragraph of it was long enough
            if is_whole:
                if has_long or count < least:
                    break
                first, stop = FIRST, count
            elif at < count and not kinds[at] & PARAGRAPH:
                continue
            else:
                stop = at
            length, found = stop - first, 0
            if length >= width:
                found = _lettered_windows(words, kinds, first, stop, width, windows, kept)
            elif is_whole and _has_letter(kinds, count):
                kept[0], found = hash_of(words, FIRST, count), 1
            if found:
                has_long = True
                while total + found > features.size:
                    features = grown(features, total)
                copied(kept, found, features, total)
                total += found
                if passages == owner.size:
                    owner, size, head = grown(owner, passages), grown(size, passages), grown(head, passages)
                if passages + 1 == starts.size:
                    starts = grown(starts, passages + 1)
                owner[passages], size[passages] = row, length
                head[passages] = np.uint64(0) if length >= width else hash_of(words, first, _head_of(length))
                passages += 1
                starts[passages] = total
            first = stop
    return owner[:passages], size[:passages], head[:passages], features[:total], starts[: passages + 1]
