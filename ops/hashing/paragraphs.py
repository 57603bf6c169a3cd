# mypy: allow-untyped-defs, allow-untyped-calls
"""n-gram features of paragraphs, and their overlap with a sorted index; compiled. `definition.paragraph_features` is the twin.

Tokens are what white space leaves, case and punctuation kept; they run across single newlines, so re-wrapped
text gives the same features. A paragraph ends at a blank line.
"""

import numpy as np

from ops.hashing.code_points import LETTER, SPACE
from ops.hashing.compiled import kernel
from ops.hashing.definition import FNV_OFFSET, FNV_PRIME
from ops.hashing.kernels import mix64, next_code_point, window_hashes

MISS, HIT, DROPPED = 0, 1, 2  # what an index entry means for a document: no evaluation's, an evaluation's, boilerplate

_FNV_OFFSET, _FNV_PRIME = np.uint64(FNV_OFFSET), np.uint64(FNV_PRIME)
_NEWLINE = np.uint32(10)


@kernel
def _close_paragraph(tokens, lettered, count, width, short_tokens, features):
    """Features of one paragraph's tokens; returns how many. Windows without a letter are skipped."""
    if count == 0 or count < min(short_tokens, width):
        return 0
    windows = window_hashes(tokens, count, width, features)
    width = min(width, count)
    letters = 0
    for i in range(width - 1):
        letters += lettered[i]
    kept = 0
    for i in range(windows):
        letters += lettered[i + width - 1]
        if letters:
            features[kept] = features[i]
            kept += 1
        letters -= lettered[i]
    return kept


@kernel
def features_of(data, start, stop, classes, width, short_tokens, tokens, lettered, features, ends):
    """Write a text's features one paragraph after another.

    Args:
        width: tokens of an n-gram.
        short_tokens: a paragraph of this many tokens up to width - 1 is one feature; shorter ones are none.
        tokens, lettered, features, ends: scratch with room for every token of the text.

    Returns:
        How many paragraphs have features; paragraph p's end before `ends[p]` in `features`.
    """
    paragraphs = total = count = newlines = 0
    word, has_letter, in_word = _FNV_OFFSET, False, False
    at = start
    while True:
        ended = at >= stop
        code, kind = _NEWLINE, np.uint8(SPACE)
        if not ended:
            code, at = next_code_point(data, at, stop)
            kind = classes[code] if code < classes.size else np.uint8(0)
        if not kind & SPACE:
            word = (word ^ np.uint64(code)) * _FNV_PRIME
            has_letter |= kind & LETTER != 0
            in_word = True
            newlines = 0
            continue
        if in_word:
            tokens[count], lettered[count] = mix64(word), has_letter
            count += 1
            word, has_letter, in_word = _FNV_OFFSET, False, False
        newlines += code == _NEWLINE
        if ended or newlines == 2:
            found = _close_paragraph(tokens, lettered, count, width, short_tokens, features[total:])
            total += found
            if found:
                ends[paragraphs] = total
                paragraphs += 1
            count = 0
        if ended:
            return paragraphs


@kernel
def _room(offsets):
    """The most tokens a row can have: every second byte begins one."""
    longest = 0
    for row in range(offsets.size - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    return longest // 2 + 1


@kernel
def column_features(data, offsets, classes, width, short_tokens):
    """All features of a text column, row after row, and [rows + 1] offsets into them."""
    rows = offsets.size - 1
    room = _room(offsets)
    tokens, lettered, features = np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.uint64)
    ends = np.empty(room, np.int64)
    found = np.empty((offsets[rows] - offsets[0]) // 2 + rows, np.uint64)
    starts = np.zeros(rows + 1, np.int64)
    for row in range(rows):
        paragraphs = features_of(data, offsets[row], offsets[row + 1], classes, width, short_tokens, tokens, lettered, features, ends)
        count = ends[paragraphs - 1] if paragraphs else 0
        found[starts[row] : starts[row] + count] = features[:count]
        starts[row + 1] = starts[row] + count
    return found[: starts[rows]], starts


@kernel
def place_of(index, prefixes, shift, feature):
    """Where a feature stands in the sorted index, or -1."""
    prefix = feature >> shift
    low, high = prefixes[prefix], prefixes[prefix + np.uint64(1)]
    while low < high:
        middle = (low + high) // 2
        if index[middle] < feature:
            low = middle + 1
        else:
            high = middle
    return low if low < prefixes[prefix + np.uint64(1)] and index[low] == feature else -1


@kernel
def count_documents(features, starts, index, prefixes, shift, counts):
    """Add to `counts` [index] in how many rows each index entry occurs."""
    last_row = np.full(index.size, -1, np.int64)
    for row in range(starts.size - 1):
        for i in range(starts[row], starts[row + 1]):
            place = place_of(index, prefixes, shift, features[i])
            if place >= 0 and last_row[place] != row:
                last_row[place] = row
                counts[place] += 1


@kernel
def column_overlaps(data, offsets, classes, width, short_tokens, index, prefixes, shift, meanings, kinds, min_overlap):
    """The worst paragraph of every row.

    Args:
        index, prefixes, shift: a sorted index and its table of prefix starts.
        meanings: [kinds, index] uint8: MISS, HIT or DROPPED for each kind of document.
        kinds: [rows] which row of `meanings` a document goes by.

    Returns:
        overlaps: [rows] the largest share of hits among a paragraph's features; dropped ones do not count at all.
        places: index places hit in the paragraphs that reach `min_overlap`, row after row, with repeats.
        starts: [rows + 1] offsets into `places`.
    """
    rows = offsets.size - 1
    room = _room(offsets)
    tokens, lettered, features = np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.uint64)
    ends, hit_places = np.empty(room, np.int64), np.empty(room, np.int64)
    overlaps = np.zeros(rows, np.float64)
    places = np.empty((offsets[rows] - offsets[0]) // 2 + rows, np.int64)
    starts = np.zeros(rows + 1, np.int64)
    for row in range(rows):
        paragraphs = features_of(data, offsets[row], offsets[row + 1], classes, width, short_tokens, tokens, lettered, features, ends)
        meaning = meanings[kinds[row]]
        begin, filled = 0, starts[row]
        for paragraph in range(paragraphs):
            hits = dropped = 0
            for i in range(begin, ends[paragraph]):
                place = place_of(index, prefixes, shift, features[i])
                if place < 0:
                    continue
                if meaning[place] == HIT:
                    hit_places[hits] = place
                    hits += 1
                elif meaning[place] == DROPPED:
                    dropped += 1
            counted = ends[paragraph] - begin - dropped
            begin = ends[paragraph]
            if hits == 0:
                continue
            overlap = hits / counted
            overlaps[row] = max(overlaps[row], overlap)
            if overlap >= min_overlap:
                places[filled : filled + hits] = hit_places[:hits]
                filled += hits
        starts[row + 1] = filled
    return overlaps, places[: starts[rows]], starts
