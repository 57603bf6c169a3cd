# mypy: allow-untyped-defs, allow-untyped-calls
"""Where features of passages stand in texts, and how much of each passage is there; compiled."""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.kernels import window_hashes
from ops.hashing.passage_words import BOUNDARY, scan_words
from ops.hashing.passages import FIRST, LONG_HEAD, SHORT_HEAD, candidates, grown, hash_of, place_of, room_for_words

_ONE = np.uint16(1)
FULL_WEIGHT = 720_720  # of a feature that one passage has alone; divisible by every number up to 16, so shares stay whole numbers


@kernel
def _bounded_heads(words, kinds, count, hashes, firsts):
    """Heads of short passages that a boundary precedes, and the words they begin at; returns how many."""
    found = 0
    for i in range(count - SHORT_HEAD + 1):
        if kinds[i] & BOUNDARY:
            hashes[found], firsts[found] = hash_of(words, i, SHORT_HEAD), i
            found += 1
    return found


@kernel
def column_hits(data, offsets, codes, width, lookup):
    """Every feature of the index that stands in a text.

    Returns:
        [hits] arrays, row by row, in a row long features first: the row; the place in the index; the first word's
        number in its row; and the bytes of the row from where to where.
    """
    rows = offsets.size - 1
    room = room_for_words(offsets)
    words, windows, kinds = np.empty(room, np.uint64), np.empty(room, np.uint64), np.empty(room, np.uint8)
    first_bytes, last_bytes = np.empty(room, np.int64), np.empty(room, np.int64)
    row_of, place, word = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.int64)
    start, end = np.empty(64, np.int64), np.empty(64, np.int64)
    firsts, passed = np.empty(room, np.int64), np.empty(room, np.int64)
    hits = FIRST
    for row in range(rows):
        base = offsets[row]
        count = scan_words(data, base, offsets[row + 1], codes, words, first_bytes, last_bytes, kinds)
        for size in (width, LONG_HEAD, SHORT_HEAD):
            if count < size:
                continue
            if size == SHORT_HEAD:
                found = _bounded_heads(words, kinds, count, windows, firsts)
            else:
                found = window_hashes(words, count, size, windows)
            for c in range(candidates(lookup, windows, found, passed)):
                at = place_of(lookup, windows[passed[c]])
                if at < 0:
                    continue
                i = firsts[passed[c]] if size == SHORT_HEAD else passed[c]
                lengths = lookup.lengths[at] if size < width else _ONE << np.uint16(width)
                longest_here = width if size == width else width - 1 if size == LONG_HEAD else LONG_HEAD - 1
                for length in range(size, min(longest_here, count - i) + 1):
                    if not lengths >> np.uint16(length) & _ONE:
                        continue
                    if size == SHORT_HEAD and i + length < count and not kinds[i + length] & BOUNDARY:
                        continue
                    whole = at if length == size else place_of(lookup, hash_of(words, i, length))
                    if whole < 0:
                        continue
                    if hits == place.size:
                        row_of, place, word = grown(row_of, hits), grown(place, hits), grown(word, hits)
                        start, end = grown(start, hits), grown(end, hits)
                    row_of[hits], place[hits], word[hits] = row, whole, i
                    start[hits], end[hits] = first_bytes[i] - base, last_bytes[i + length - 1] - base
                    hits += 1
    return row_of[:hits], place[:hits], word[:hits], start[:hits], end[:hits]


@kernel
def count_rows(rows, places, seen, serial, counts):
    """Add to `counts` [index] in how many rows each index entry occurs. Hits come row by row.

    Args:
        seen: [index] int64 scratch, -1 at first; keeps the last row that had the entry, numbered from `serial`.
    """
    for i in range(rows.size):
        row = serial + rows[i]
        if seen[places[i]] != row:
            seen[places[i]] = row
            counts[places[i]] += 1


@kernel
def column_coverage(kinds, row_of, place, word, start, end, owner_offsets, owners, weights, dropped, judged, gap, seen, serial, covered):
    """How much of which passage each row holds.

    Args:
        kinds: [rows] which row of `judged` a document goes by.
        row_of, place, word, start, end: hits, row by row.
        owner_offsets, owners, weights: for each index entry the passages that have it and what it weighs for each.
        dropped: [entries] what counts for nobody.
        judged: [kinds, passages] bool; passages that are false for a kind are passed over.
        gap: words between two hits of one run, at most.
        seen, serial: as `count_rows` has them. covered: [passages] int64 scratch, zero before and after.

    Returns:
        [found] arrays: row, passage, covered weight, and the bytes of its longest run of hits.
    """
    last, run, best = np.empty(covered.size, np.int64), np.empty(covered.size, np.int64), np.empty(covered.size, np.int64)
    run_start, best_start, best_end = np.empty(covered.size, np.int64), np.empty(covered.size, np.int64), np.empty(covered.size, np.int64)
    touched = np.empty(64, np.int64)
    rows_out, passages, weight_out = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64, np.int64)
    starts_out, ends_out = np.empty(64, np.int64), np.empty(64, np.int64)
    found = i = FIRST
    while i < row_of.size:
        row, count = row_of[i], 0
        while i < row_of.size and row_of[i] == row:
            entry = place[i]
            repeated = seen[entry] == serial + row
            seen[entry] = serial + row
            if not dropped[entry]:
                for j in range(owner_offsets[entry], owner_offsets[entry + 1]):
                    passage = owners[j]
                    if not judged[kinds[row], passage]:
                        continue
                    if covered[passage] == 0:
                        if count == touched.size:
                            touched = grown(touched, count)
                        touched[count] = passage
                        count += 1
                        last[passage], best[passage] = word[i] - gap - 1, 0
                    if not repeated:
                        covered[passage] += weights[j]
                    if word[i] - last[passage] > gap or word[i] < last[passage]:
                        run[passage], run_start[passage] = 0, start[i]
                    run[passage] += 1
                    last[passage] = word[i]
                    if run[passage] > best[passage]:
                        best[passage], best_start[passage], best_end[passage] = run[passage], run_start[passage], end[i]
            i += 1
        for j in range(count):
            if found == passages.size:
                rows_out, passages, weight_out = grown(rows_out, found), grown(passages, found), grown(weight_out, found)
                starts_out, ends_out = grown(starts_out, found), grown(ends_out, found)
            passage = touched[j]
            rows_out[found], passages[found], weight_out[found] = row, passage, covered[passage]
            starts_out[found], ends_out[found] = best_start[passage], best_end[passage]
            covered[passage] = 0
            found += 1
    return rows_out[:found], passages[:found], weight_out[:found], starts_out[:found], ends_out[:found]
