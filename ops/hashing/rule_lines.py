# mypy: allow-untyped-defs, allow-untyped-calls
"""Lines as the published rules look at them: bullets, ellipses, ends of sentences, boilerplate; compiled."""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.rule_repeats import came_before, cleared
from ops.hashing.rule_tables import DECIMAL, LINE_BREAK, SPACE, TERMINAL
from ops.hashing.rule_words import FIRST, fill_bits, hash_of, sentences_of, words_of

_NEWLINE, _RETURN, _STOP, _ELLIPSIS = (np.uint32(ord(mark)) for mark in "\n\r.…")
_BULLET, _DASH, _OPEN, _CLOSE, _BRACE = (np.uint32(ord(mark)) for mark in "•-[]{")
_CASE = np.uint32(32)
_A, _Z = np.uint32(ord("A")), np.uint32(ord("Z"))
_C4_ENDS = np.array([ord(mark) for mark in ".?!\"'"], np.uint32)


def _row(words: list[str]) -> np.ndarray:
    """Words as code points, one a row, filled up with zeros."""
    rows = np.zeros((len(words), max(map(len, words)) + 1), np.uint32)
    for row, word in zip(rows, words, strict=True):
        row[: len(word)] = [ord(letter) for letter in word]
    return rows


_PHRASES = _row(
    ["lorem ipsum", "javascript", "terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies"]
)
_LOREM, _SCRIPT = 0, 1  # rows of _PHRASES; the others are policies
_BEGINS_PHRASE = np.isin(np.arange(128), _PHRASES[:, 0])
_CITATIONS = _row(["[edit]", "[citation needed]"])

(
    C4_SENTENCES,  # in kept lines
    C4_KEPT_LINES,
    C4_LONG_WORD_LINES,
    C4_UNENDED_LINES,
    C4_SHORT_LINES,
    C4_SCRIPT_LINES,
    C4_POLICY_LINES,
    C4_LOREM_LINES,
    C4_BRACE_LINES,
    C4_COUNTS,
) = range(10)


@kernel
def line_end(codes, bits, at, stop):
    """Where the line at `at` ends, and where the next begins (`str.splitlines`)."""
    end = at
    while end < stop and not bits[end] & LINE_BREAK:
        end += 1
    following = end + 1
    if codes[end] == _RETURN and codes[end + 1] == _NEWLINE:
        following += 1
    return end, min(following, stop)


@kernel
def stripped(bits, start, stop):
    """Bounds without white space at both ends."""
    while start < stop and bits[start] & SPACE:
        start += 1
    while stop > start and bits[stop - 1] & SPACE:
        stop -= 1
    return start, stop


@kernel
def _ends_in_ellipsis(codes, start, stop):
    if stop > start and codes[stop - 1] == _ELLIPSIS:
        return True
    return stop - start >= 3 and codes[stop - 1] == _STOP and codes[stop - 2] == _STOP and codes[stop - 3] == _STOP


@kernel
def bullet_lines(codes, bits, start, stop):
    """Lines; those that begin with a bullet or dash; those that end in an ellipsis (Gopher)."""
    lines = bullets = ellipses = 0
    at = start
    while at < stop:
        end, following = line_end(codes, bits, at, stop)
        first, last = stripped(bits, at, end)
        lines += 1
        bullets += last > first and (codes[first] == _BULLET or codes[first] == _DASH)
        ellipses += _ends_in_ellipsis(codes, first, last)
        at = following
    return lines, bullets, ellipses


@kernel
def newline_lines(codes, bits, start, stop, short_chars, keys):
    """Lines between newlines that are not blank (FineWeb): all, ended by a terminal mark, short, characters repeated; newlines."""
    lines = ended = short = repeated = newlines = 0
    mask = cleared(keys, stop - start + 1)
    at = start
    while at <= stop:
        end = at
        while end < stop and codes[end] != _NEWLINE:
            end += 1
        first, last = stripped(bits, at, end)
        if last > first:
            lines += 1
            ended += bits[end - 1] & TERMINAL != 0
            short += end - at <= short_chars
            if came_before(keys, mask, hash_of(codes, at, end)):
                repeated += end - at
        newlines += end < stop
        at = end + 1
    return lines, ended, short, repeated, newlines


@kernel
def _lowered(code):
    return code + _CASE if _A <= code <= _Z else code


@kernel
def _stands_at(codes, at, stop, phrase):
    for i in range(phrase.size):
        if phrase[i] == 0:
            return i
        if at + i >= stop or _lowered(codes[at + i]) != phrase[i]:
            return 0
    return 0


@kernel
def _without_citations(codes, bits, start, stop, out):
    """Copy a line without "[12]", "[]", "[edit]" and "[citation needed]"; returns its new length."""
    count = 0
    at = start
    while at < stop:
        if codes[at] == _OPEN:
            end = at + 1
            while end < stop and bits[end] & DECIMAL:
                end += 1
            if end < stop and codes[end] == _CLOSE:
                at = end + 1
                continue
            length = 0
            for row in range(_CITATIONS.shape[0]):
                length = max(length, _stands_exactly_at(codes, at, stop, _CITATIONS[row]))
            if length:
                at += length
                continue
        out[count] = codes[at]
        count += 1
        at += 1
    return count


@kernel
def _stands_exactly_at(codes, at, stop, phrase):
    for i in range(phrase.size):
        if phrase[i] == 0:
            return i
        if at + i >= stop or codes[at + i] != phrase[i]:
            return 0
    return 0


@kernel
def _ends_a_c4_line(code):
    is_end = False
    for end in _C4_ENDS:
        is_end |= code == end
    return is_end


@kernel
def _words_and_longest(bits, start, stop):
    words = longest = length = 0
    for i in range(start, stop):
        if bits[i] & SPACE:
            length = 0
            continue
        words += length == 0
        length += 1
        longest = max(longest, length)
    return words, longest


@kernel
def c4_lines(codes, bits, stop, table, clipped, words, max_word_chars, least_words, need_end, line, line_words, out):
    """Judge line by line what C4 keeps, and count it by reason in `out` [C4_COUNTS].

    Args:
        words: where the text's words begin, their kinds, and how many there are.
        out: zeros. line, line_words: scratch for a line without its citations: codes and bits; hashes, starts, ends, kinds of words.
    """
    starts, kinds, count = words
    line_codes, line_bits = line
    line_hashes, line_starts, line_ends, line_kinds = line_words
    at = word = FIRST
    while at < stop:
        end, following = line_end(codes, bits, at, stop)
        first, last = stripped(bits, at, end)
        at = following
        from_word = word
        while word < count and starts[word] < last:
            word += 1
        tokens, longest = _words_and_longest(bits, first, last)
        if longest > max_word_chars:
            out[C4_LONG_WORD_LINES] += 1
            continue
        length = _without_citations(codes, bits, first, last, line_codes)
        is_ended = length > 0 and _ends_a_c4_line(line_codes[length - 1])
        if need_end and (not is_ended or (line_codes[length - 1] == _STOP and _ends_in_ellipsis(line_codes, FIRST, length))):
            out[C4_UNENDED_LINES] += 1
            continue
        if tokens < least_words:
            out[C4_SHORT_LINES] += 1
            continue
        lorem, script, policy, brace = _phrases_in(line_codes, length)
        if lorem:
            out[C4_LOREM_LINES] += 1
        elif script:
            out[C4_SCRIPT_LINES] += 1
        elif brace:
            out[C4_BRACE_LINES] += 1
        elif policy:
            out[C4_POLICY_LINES] += 1
        else:
            out[C4_KEPT_LINES] += 1
            if length == last - first:
                out[C4_SENTENCES] += sentences_of(kinds, from_word, word)
            else:
                fill_bits(line_codes, length, table, line_bits)
                found = words_of(line_codes, line_bits, FIRST, length, clipped, line_hashes, line_starts, line_ends, line_kinds)
                out[C4_SENTENCES] += sentences_of(line_kinds, FIRST, found)


@kernel
def _phrases_in(line, length):
    """Whether a line has: lorem ipsum, javascript, a policy's words, a curly bracket."""
    lorem = script = policy = brace = False
    for i in range(length):
        code = _lowered(line[i])
        brace |= code == _BRACE
        if not _BEGINS_PHRASE[min(code, np.uint32(127))]:
            continue
        for row in range(_PHRASES.shape[0]):
            if code == _PHRASES[row, 0] and _stands_at(line, i, length, _PHRASES[row]):
                lorem |= row == _LOREM
                script |= row == _SCRIPT
                policy |= row > _SCRIPT
    return lorem, script, policy, brace
