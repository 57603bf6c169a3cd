# mypy: allow-untyped-defs, allow-untyped-calls
"""Where the pre-tokenizer of `ops.tokenizer` ends a piece, from UTF-8 bytes; compiled.

The pattern, alternative by alternative, the first that matches wins:
letters and marks with at most one leading character that is no line end and no number; one to three numbers; others with
one leading space and trailing line ends; white space up to its last line end; white space before white space or the end.
"""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.eight_bytes import leading_letters, load_eight
from ops.hashing.kernels import next_code_point

LETTER, NUMBER, SPACE, LINE_END = 1, 2, 4, 8  # bits by code point; LETTER: letters and marks
_BLANK = np.uint32(32)
_ANY = LETTER | NUMBER | SPACE


@kernel
def kind_at(data, at, stop, classes):
    """Bits and code of the character at `at`, and where the next begins; at the end SPACE, a blank, and `stop`."""
    if at >= stop:
        return np.uint8(SPACE), _BLANK, stop
    first = np.uint32(data[at])
    if first < 0x80:
        return classes[first], first, at + 1
    code, following = next_code_point(data, at, stop)
    return (classes[code] if code < classes.size else np.uint8(0)), code, following


@kernel
def piece_end(data, start, stop, classes):
    """Where the piece that begins at `start` ends."""
    kind, code, at = kind_at(data, start, stop, classes)
    if kind & LETTER:
        return _letters_end(data, at, stop, classes)
    if kind & NUMBER:
        for _ in range(2):
            kind, _, following = kind_at(data, at, stop, classes)
            if at >= stop or not kind & NUMBER:
                break
            at = following
        return at
    second, _, following = kind_at(data, at, stop, classes)
    if second & LETTER and not kind & LINE_END:
        return _letters_end(data, following, stop, classes)
    if not kind & SPACE:
        return _others_end(data, at, stop, classes)
    if code == _BLANK and at < stop and not second & _ANY:
        return _others_end(data, following, stop, classes)
    return _space_end(data, start, stop, classes)


@kernel
def _letters_end(data, at, stop, classes):
    while at + 8 <= stop:
        count = leading_letters(load_eight(data, at))
        at += count
        if count < 8:
            if data[at] < 0x80:
                return at
            break
    while at < stop:
        kind, _, following = kind_at(data, at, stop, classes)
        if not kind & LETTER:
            break
        at = following
    return at


@kernel
def _others_end(data, at, stop, classes):
    while at < stop:
        kind, _, following = kind_at(data, at, stop, classes)
        if kind & _ANY:
            break
        at = following
    while at < stop:
        kind, _, following = kind_at(data, at, stop, classes)
        if not kind & LINE_END:
            break
        at = following
    return at


@kernel
def _space_end(data, start, stop, classes):
    at, last, behind_line_end = start, start, 0
    while at < stop:
        kind, _, following = kind_at(data, at, stop, classes)
        if not kind & SPACE:
            break
        last, at = at, following
        if kind & LINE_END:
            behind_line_end = following
    if behind_line_end:
        return behind_line_end
    return at if at >= stop or last == start else last
