# mypy: allow-untyped-defs, allow-untyped-calls
"""The shape of texts: how many letters, words, lines and repeats. One pass over each text, compiled.

The plain Python twin is in the tests. Texts are UTF-8; a line ends at a newline; a word is what white space
leaves, and its letters alone, in lower case, are looked up among the stop words.
"""

import numpy as np

from ops.hashing.code_points import DIGIT, LETTER, MARK, PUNCTUATION, SPACE, UNSPACED
from ops.hashing.compiled import kernel
from ops.hashing.definition import FNV_OFFSET, FNV_PRIME
from ops.hashing.kernels import mix64, next_code_point, window_hashes

(
    CHARS,  # without white space
    LETTERS,  # and marks that belong to letters
    DIGITS,
    SYMBOLS,  # no letter, digit, space or sentence punctuation
    UNSPACED_CHARS,  # of scripts that write no spaces
    WORDS,
    STOP_WORDS,
    LINES,  # with anything in them
    CODE_LINES,  # end like a statement or begin with four spaces or a tab
    REPEATED_LINE_CHARS,  # of CHARS, in lines that came before in the text
    NGRAMS,
    REPEATED_NGRAMS,  # that came before in the text
    MEASURES,
) = range(13)

NGRAM_WORDS = 5
NGRAM_CHARS = 12  # where words are long because the script writes no spaces, or because the text is minified
LONG_WORD_CHARS = 14  # a mean word length beyond it: white space does not part words (German novels reach 6, Finnish 8)

_FNV_OFFSET, _FNV_PRIME = np.uint64(FNV_OFFSET), np.uint64(FNV_PRIME)
_EMPTY, _ONE = np.uint64(0), np.uint64(1)
_NEWLINE, _TAB, _BLANK = np.uint32(10), np.uint32(9), np.uint32(32)
_STATEMENT_ENDS = np.array([ord(mark) for mark in "{}();[]=\\"], np.uint32)


@kernel
def _came_before(table, mask, value):
    """Put a hash into an open-addressing set; true if it was there."""
    value = max(value, _ONE)
    slot = value & mask
    while table[slot] != _EMPTY:
        if table[slot] == value:
            return True
        slot = (slot + _ONE) & mask
    table[slot] = value
    return False


@kernel
def _emptied(table, count):
    """Clear room for `count` hashes at half load; returns the mask of the part in use."""
    slots = 16
    while slots < 2 * count:
        slots *= 2
    table[:slots] = _EMPTY
    return np.uint64(slots - 1)


@kernel
def _is_in(values, value):
    at = np.searchsorted(values, value)
    return at < values.size and values[at] == value


@kernel
def _ends_statement(code):
    return np.any(code == _STATEMENT_ENDS)


@kernel
def _count_repeats(hashes, count, table):
    mask = _emptied(table, count)
    repeats = 0
    for i in range(count):
        repeats += _came_before(table, mask, hashes[i])
    return repeats


@kernel
def _measure(data, start, stop, max_chars, classes, folding, stop_words, words, characters, lines, line_chars, out):
    """Fill the counts of one text in `out`; word, character and line hashes in their scratch arrays. Returns the lines."""
    at, read, line_count = start, 0, 0
    word = letters = line = _FNV_OFFSET
    word_chars = word_letters = chars_of_line = indent = 0
    last = _BLANK
    while at <= stop:
        ended = at == stop or read == max_chars
        if ended:
            code, kind = _NEWLINE, np.uint8(SPACE)
        else:
            code, at = next_code_point(data, at, stop)
            kind = classes[code] if code < classes.size else np.uint8(0)
            read += 1
        if kind & SPACE:
            if word_chars:
                words[out[WORDS]] = mix64(word)
                out[WORDS] += 1
                out[STOP_WORDS] += word_letters > 0 and _is_in(stop_words, mix64(letters))
                word = letters = _FNV_OFFSET
                word_chars = word_letters = 0
            if code == _NEWLINE:
                if chars_of_line:
                    lines[line_count], line_chars[line_count] = mix64(line), chars_of_line
                    line_count += 1
                    out[CODE_LINES] += indent >= 4 or _ends_statement(last)
                line = _FNV_OFFSET
                chars_of_line = indent = 0
            elif chars_of_line == 0:
                indent += 4 if code == _TAB else 1
            if ended:
                break
            continue
        folded = np.uint64(folding[code] if code < folding.size else code)
        characters[out[CHARS]] = mix64(folded)
        out[CHARS] += 1
        word = (word ^ folded) * _FNV_PRIME
        line = (line ^ folded) * _FNV_PRIME
        word_chars += 1
        chars_of_line += 1
        last = code
        if kind & (LETTER | MARK):
            out[LETTERS] += 1
            letters = (letters ^ folded) * _FNV_PRIME
            word_letters += 1
        elif kind & DIGIT:
            out[DIGITS] += 1
        elif not kind & PUNCTUATION:
            out[SYMBOLS] += 1
        out[UNSPACED_CHARS] += kind & UNSPACED > 0
    out[LINES] = line_count
    return line_count


@kernel
def text_shapes(data, offsets, max_chars, classes, folding, stop_words):
    """Count the shape of every row of a text column.

    Args:
        max_chars: read from the beginning of each text.
        classes, folding: `code_points.character_classes()` and `case_folding()`.
        stop_words: sorted hashes.

    Returns:
        [rows, MEASURES] int64, columns as named in this module.
    """
    rows = offsets.size - 1
    longest = 0
    for row in range(rows):
        longest = max(longest, offsets[row + 1] - offsets[row])
    longest = min(longest, max_chars)
    words, characters, lines, hashes = (
        np.empty(longest, np.uint64),
        np.empty(longest, np.uint64),
        np.empty(longest, np.uint64),
        np.empty(longest, np.uint64),
    )
    line_chars = np.empty(longest, np.int64)
    slots = 16
    while slots < 2 * longest:
        slots *= 2
    table = np.empty(slots, np.uint64)
    shapes = np.zeros((rows, MEASURES), np.int64)
    for row in range(rows):
        out = shapes[row]
        count = _measure(
            data, offsets[row], offsets[row + 1], max_chars, classes, folding, stop_words, words, characters, lines, line_chars, out
        )
        mask = _emptied(table, count)
        for i in range(count):
            if _came_before(table, mask, lines[i]):
                out[REPEATED_LINE_CHARS] += line_chars[i]
        if out[CHARS] > LONG_WORD_CHARS * out[WORDS]:
            out[NGRAMS] = window_hashes(characters, out[CHARS], NGRAM_CHARS, hashes)
        else:
            out[NGRAMS] = window_hashes(words, out[WORDS], NGRAM_WORDS, hashes)
        out[REPEATED_NGRAMS] = _count_repeats(hashes, out[NGRAMS], table)
    return shapes
