# mypy: allow-untyped-defs, allow-untyped-calls
"""The tokens of source code, for Python and for languages with braces: no more than what tells a function's body; compiled."""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.definition import FNV_OFFSET, FNV_PRIME, word_hash
from ops.hashing.kernels import mix64

NAME, NUMBER, STRING, MARK = 0, 1, 2, 3
DEF = np.uint64(word_hash("def"))

_FNV_OFFSET, _FNV_PRIME, _STRING = np.uint64(FNV_OFFSET), np.uint64(FNV_PRIME), np.uint64(word_hash("string"))
_PARTNERS = 16  # open brackets searched for the partner of a closing one
_NEWLINE, _TAB, _SPACE, _QUOTE, _APOSTROPHE, _BACKTICK, _BACKSLASH, _HASH, _SLASH, _STAR = (ord(mark) for mark in "\n\t \"'`\\#/*")
OPEN, CLOSE, BRACE, UNBRACE, BRACKET, UNBRACKET = (ord(mark) for mark in "(){}[]")


@kernel
def _is_name_byte(byte):
    return 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A or 0x30 <= byte <= 0x39 or byte == 0x5F or byte >= 0x80


@kernel
def _line_end(data, at, stop):
    while at < stop and data[at] != _NEWLINE:
        at += 1
    return at


@kernel
def _string_end(data, at, stop, quote):
    """Past the closing quote of a string that opens before `at`; a string ends with its line at the latest."""
    while at < stop:
        if data[at] == _BACKSLASH:
            at += 2
            continue
        if data[at] == quote:
            return at + 1
        if data[at] == _NEWLINE and quote != _BACKTICK:
            return at
        at += 1
    return stop


@kernel
def _triple_end(data, at, stop, quote):
    while at + 2 < stop:
        if data[at] == _BACKSLASH:
            at += 2
            continue
        if data[at] == quote and data[at + 1] == quote and data[at + 2] == quote:
            return at + 3
        at += 1
    return stop


@kernel
def lex(data, start, stop, python, hashes, kinds, starts, ends, columns, openers):
    """The tokens of a text.

    Args:
        python: whether `#` begins a comment and three quotes a doc string (dropped); else `//`, `/*` and lines that begin
            with `#` are passed over.
        hashes, kinds, starts, ends, columns, openers: filled here, with room for `stop - start` entries: the hash, the
            kind (for MARK the hash is the byte), bytes from and to, the column of a token that begins a logical line
            (else -1), and for a closing bracket the token that opened it (else -1).

    Returns:
        How many tokens there are.
    """
    stack = np.empty(64, np.int64)
    count = depth = column = 0
    fresh = True
    at = start
    while at < stop:
        byte = data[at]
        if byte == _NEWLINE:
            fresh, column = True, 0
            at += 1
            continue
        if byte <= _SPACE:
            column += 8 - column % 8 if byte == _TAB else 1
            at += 1
            continue
        if byte == _HASH and (python or fresh):
            at = _line_end(data, at, stop)
            continue
        if not python and byte == _SLASH and at + 1 < stop:
            if data[at + 1] == _SLASH:
                at = _line_end(data, at, stop)
                continue
            if data[at + 1] == _STAR:
                at += 2
                while at < stop and not (data[at] == _SLASH and data[at - 1] == _STAR):
                    at += 1
                at += 1
                continue
        begin = at
        if byte in (_QUOTE, _APOSTROPHE) or (byte == _BACKTICK and not python):
            if python and at + 2 < stop and data[at + 1] == byte and data[at + 2] == byte:
                at = _triple_end(data, at + 3, stop, byte)
                fresh = False
                continue
            at = min(stop, _string_end(data, at + 1, stop, byte))
            value = _STRING
            for i in range(begin + 1, at - 1):
                value = (value ^ np.uint64(data[i])) * _FNV_PRIME
            kind = STRING
        elif _is_name_byte(byte):
            value = _FNV_OFFSET
            while at < stop and _is_name_byte(data[at]):
                value = (value ^ np.uint64(data[at])) * _FNV_PRIME
                at += 1
            value = mix64(value)
            kind = NUMBER if 0x30 <= byte <= 0x39 else NAME
        else:
            value, kind = np.uint64(byte), MARK
            at += 1
        if python and fresh and kind == NAME and value == DEF:
            depth = 0  # no definition stands inside brackets
        hashes[count], kinds[count], starts[count], ends[count], openers[count] = value, kind, begin, at, -1
        columns[count] = column if fresh and (depth == 0 or not python) else -1
        if kind == MARK:
            if byte in (OPEN, BRACE, BRACKET):
                if depth == stack.size:
                    wider = np.empty(2 * depth, np.int64)
                    wider[:depth] = stack
                    stack = wider
                stack[depth] = count
                depth += 1
            elif byte in (CLOSE, UNBRACE, UNBRACKET):
                wanted = np.uint64(OPEN if byte == CLOSE else BRACE if byte == UNBRACE else BRACKET)
                for below in range(1, min(depth, _PARTNERS) + 1):  # a bracket in prose has no partner: pass over it
                    if hashes[stack[depth - below]] == wanted:
                        depth -= below
                        openers[count] = stack[depth]
                        break
        fresh = False
        count += 1
    return count


@kernel
def is_mark(hashes, kinds, token, byte):
    """Whether a token is this punctuation mark."""
    return kinds[token] == MARK and hashes[token] == np.uint64(byte)
