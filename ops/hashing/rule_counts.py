# mypy: allow-untyped-defs, allow-untyped-calls
"""Everything the published rules count in a text, in one call for a whole column; compiled, without the GIL."""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.kernels import next_code_point
from ops.hashing.rule_lines import C4_COUNTS, bullet_lines, c4_lines, newline_lines, stripped
from ops.hashing.rule_repeats import count_parts, repeated_ngram_chars, top_ngram_chars
from ops.hashing.rule_tables import ALPHA, WORD
from ops.hashing.rule_words import FIRST, PADDING, fill_bits, words_of

TOP_WIDTHS = (2, 3, 4)
REPEATED_WIDTHS = (5, 6, 7, 8, 9, 10)

(
    CHARS,
    WORDS,
    NAMED_WORDS,  # with a character that is no symbol
    NAMED_WORD_CHARS,
    ALPHA_WORDS,
    STOP_WORDS,  # distinct ones
    HASHES,
    ELLIPSES,
    LINES,
    BULLET_LINES,
    ELLIPSIS_LINES,
    PARAGRAPHS,  # between two or more newlines
    REPEATED_PARAGRAPHS,
    REPEATED_PARAGRAPH_CHARS,
    PARTS,  # between newlines, blank ones not counted but at the ends
    REPEATED_PARTS,
    REPEATED_PART_CHARS,
    FULL_LINES,  # that are not blank
    ENDED_LINES,
    SHORT_LINES,
    REPEATED_LINE_CHARS,
    NEWLINES,
    TOP_NGRAM_CHARS,  # one for each of TOP_WIDTHS
) = range(23)
REPEATED_NGRAM_CHARS = TOP_NGRAM_CHARS + len(TOP_WIDTHS)  # one for each of REPEATED_WIDTHS
C4 = REPEATED_NGRAM_CHARS + len(REPEATED_WIDTHS)  # C4_COUNTS of `rule_lines`
COUNTS = C4 + C4_COUNTS

_ONE = np.uint64(1)
_LINE, _BLANK_LINE = np.int64(1), np.int64(2)  # least newlines between two; see `FIRST`
_HASH, _STOP, _ELLIPSIS = (np.uint32(ord(mark)) for mark in "#.…")


@kernel
def _decoded(data, start, stop, codes):
    """Code points of a text into `codes`, as many as fit before the padding; returns how many."""
    count = 0
    at = start
    while at < stop and count < codes.size - PADDING:
        codes[count], at = next_code_point(data, at, stop)
        count += 1
    return count


@kernel
def _count_marks(codes, chars, out):
    dots = 0
    for i in range(chars):
        out[HASHES] += codes[i] == _HASH
        out[ELLIPSES] += codes[i] == _ELLIPSIS
        dots = dots + 1 if codes[i] == _STOP else 0
        if dots == 3:
            out[ELLIPSES] += 1
            dots = 0


@kernel
def _count_words(hashes, ends, kinds, words, stop_words, out):
    seen = np.uint64(0)
    for i in range(words):
        chars = ends[i + 1] - ends[i]
        if kinds[i] & WORD:
            out[NAMED_WORDS] += 1
            out[NAMED_WORD_CHARS] += chars
        out[ALPHA_WORDS] += kinds[i] & ALPHA != 0
        if 2 <= chars <= 4:
            for j in range(stop_words.size):
                if hashes[i] == stop_words[j]:
                    seen |= _ONE << np.uint64(j)
    out[WORDS] = words
    for j in range(stop_words.size):
        out[STOP_WORDS] += seen >> np.uint64(j) & _ONE != 0


@kernel
def rule_counts(data, offsets, table, clipped, stop_words, max_chars, short_line_chars, c4_word_chars, c4_line_words, c4_need_end):
    """Count every row of a text column.

    Args:
        table, clipped, stop_words: see `rule_tables`.
        max_chars: read from the beginning of each text; bounds memory, some 110 bytes a character of the longest text.
        short_line_chars: a line of at most so many characters is short.
        c4_word_chars, c4_line_words, c4_need_end: see `rule_lines.c4_lines`.

    Returns:
        [rows, COUNTS] int64, columns as named in this module.
    """
    rows = offsets.size - 1
    longest = 0
    for row in range(rows):
        longest = max(longest, offsets[row + 1] - offsets[row])
    longest = min(longest, max_chars)
    codes, bits = np.empty(longest + PADDING, np.uint32), np.empty(longest + PADDING, np.uint16)
    hashes, windows = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    starts, ends, kinds = np.empty(longest, np.int32), np.empty(longest + 1, np.int32), np.empty(longest, np.uint16)
    line = np.empty(codes.size, np.uint32), np.empty(codes.size, np.uint16)
    line_words = np.empty(longest, np.uint64), np.empty(longest, np.int32), np.empty(longest + 1, np.int32), np.empty(longest, np.uint16)
    slots = 16
    while slots < 2 * (longest + 2):
        slots *= 2
    keys, counts, firsts = np.empty(slots, np.uint64), np.empty(slots, np.int32), np.empty(slots, np.int32)
    found = np.zeros((rows, COUNTS), np.int64)
    for row in range(rows):
        out = found[row]
        chars = _decoded(data, offsets[row], offsets[row + 1], codes)
        out[CHARS] = chars
        fill_bits(codes, chars, table, bits)
        words = words_of(codes, bits, FIRST, chars, clipped, hashes, starts, ends, kinds)
        _count_marks(codes, chars, out)
        _count_words(hashes, ends, kinds, words, stop_words, out)
        out[LINES], out[BULLET_LINES], out[ELLIPSIS_LINES] = bullet_lines(codes, bits, FIRST, chars)
        first, last = stripped(bits, FIRST, chars)
        count_parts(codes, first, last, _BLANK_LINE, keys, out[PARAGRAPHS : PARAGRAPHS + 3])
        count_parts(codes, FIRST, chars, _LINE, keys, out[PARTS : PARTS + 3])
        lines = newline_lines(codes, bits, FIRST, chars, short_line_chars, keys)
        out[FULL_LINES], out[ENDED_LINES], out[SHORT_LINES], out[REPEATED_LINE_CHARS], out[NEWLINES] = lines
        for i in range(len(TOP_WIDTHS)):
            out[TOP_NGRAM_CHARS + i] = top_ngram_chars(hashes, ends, words, TOP_WIDTHS[i], windows, keys, counts, firsts)
        for i in range(len(REPEATED_WIDTHS)):
            out[REPEATED_NGRAM_CHARS + i] = repeated_ngram_chars(hashes, ends, words, REPEATED_WIDTHS[i], windows, keys)
        known = starts, kinds, words
        c4_lines(codes, bits, chars, table, clipped, known, c4_word_chars, c4_line_words, c4_need_end, line, line_words, out[C4:])
    return found
