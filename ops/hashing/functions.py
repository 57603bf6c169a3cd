# mypy: allow-untyped-defs, allow-untyped-calls
"""Functions of source code as one hash each, whatever their variables are called; compiled.

A function is its body: tokens without comments, doc strings, layout and semicolons. Keywords, literals, members after
a dot and names that are called stay as they are; every other name becomes the number of its first occurrence, and the
function's own name is one constant.
"""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.definition import word_hash
from ops.hashing.kernels import mix64
from ops.hashing.lexer import BRACE, CLOSE, DEF, MARK, NAME, OPEN, UNBRACE, is_mark, lex

MAX_BODY_TOKENS = 4_000  # longer bodies are no evaluation's function; bounds the work on nested ones
MAX_TEXT_BYTES = 4 << 20  # longer texts are no source code; bounds memory to 41 bytes a byte
MAX_DEPTH = 8  # of functions inside functions
MAX_NAMES = 256  # renamed in one function; further ones stay as they are
PYTHON, BRACES = 1, 2  # families of languages
_LOOK_BACK = 16  # tokens between a parameter list and its brace: return types, `const noexcept`, `=>`

_KEYWORDS = """
and as assert async await break case catch class const continue def default defer del do elif else enum except extends
false finally fn for from func function global go goto if impl import in instanceof interface is lambda let loop match
mod mut new nil none nonlocal not null or pass pub raise range return self static struct super switch this throw throws
true try typeof unsafe use using var void where while with yield False None True
"""
KEYWORDS = np.array(sorted({word_hash(word) for word in _KEYWORDS.split()}), np.uint64)
CONTROL = np.array(sorted(word_hash(word) for word in ("if", "for", "while", "switch", "catch", "match", "using", "with")), np.uint64)
_SEED, _SELF, _NUMBERED = (np.uint64(word_hash(word)) for word in ("function body", "own name", "renamed"))
_SPACE, _DOT, _COLON, _SEMICOLON, _D, _E, _F = (ord(mark) for mark in " .:;def")


@kernel
def _holds(sorted_hashes, value):
    at = np.searchsorted(sorted_hashes, value)
    return at < sorted_hashes.size and sorted_hashes[at] == value


@kernel
def _body_hash(hashes, kinds, first, stop, own_name, least):
    """The hash of a body, or 0 where it has fewer than `least` tokens."""
    names = np.empty(MAX_NAMES, np.uint64)
    known = counted = 0
    value = _SEED
    for i in range(first, stop):
        token = hashes[i]
        if is_mark(hashes, kinds, i, _SEMICOLON):
            continue
        if kinds[i] == NAME and not _holds(KEYWORDS, token):
            after_dot = i > first and (
                is_mark(hashes, kinds, i - 1, _DOT)
                or (is_mark(hashes, kinds, i - 1, _COLON) and i > first + 1 and is_mark(hashes, kinds, i - 2, _COLON))
            )
            called = i + 1 < stop and is_mark(hashes, kinds, i + 1, OPEN)
            if token == own_name:
                token = _SELF
            elif not after_dot and not called:
                number = 0
                while number < known and names[number] != token:
                    number += 1
                if number < known or known < MAX_NAMES:
                    if number == known:
                        names[known] = token
                        known += 1
                    token = _NUMBERED + np.uint64(number)
        value = mix64(value ^ mix64(token + np.uint64(kinds[i])))
        counted += 1
    return value if counted >= least else np.uint64(0)


@kernel
def _python_functions(hashes, kinds, columns, openers, count, least, values, firsts, lasts):
    """Hashes and token ranges of the bodies after `def name(...):`; returns how many."""
    found = 0
    for at in range(count - 3):
        column = columns[at] if columns[at] >= 0 or at == 0 else columns[at - 1]  # `async` may stand before it
        if kinds[at] != NAME or hashes[at] != DEF or column < 0 or not is_mark(hashes, kinds, at + 2, OPEN):
            continue
        body = at + 3
        while body < count and body - at < MAX_BODY_TOKENS and openers[body] != at + 2:
            body += 1
        while body < count and body - at < MAX_BODY_TOKENS and not is_mark(hashes, kinds, body, _COLON):
            body += 1
        body += 1
        end = body
        while end < count and end - body <= MAX_BODY_TOKENS and (columns[end] < 0 or columns[end] > column):
            end += 1
        if end - body > MAX_BODY_TOKENS or end <= body:
            continue
        value = _body_hash(hashes, kinds, body, end, hashes[at + 1], least)
        if value:
            values[found], firsts[found], lasts[found] = value, at, end - 1
            found += 1
    return found


@kernel
def _parameters_before(hashes, kinds, openers, brace):
    """The token that opens the parameter list before a function's brace; -1 where the brace is none's."""
    for at in range(brace - 1, max(-1, brace - 1 - _LOOK_BACK), -1):
        if openers[at] >= 0 and is_mark(hashes, kinds, at, CLOSE):
            opener = openers[at]
            return -1 if opener == 0 or (kinds[opener - 1] == NAME and _holds(CONTROL, hashes[opener - 1])) else opener
        if kinds[at] == MARK and hashes[at] in (np.uint64(_SEMICOLON), np.uint64(BRACE), np.uint64(UNBRACE)):
            return -1
    return -1


@kernel
def _brace_functions(hashes, kinds, openers, count, least, values, firsts, lasts):
    """Hashes and token ranges of the bodies in braces after a parameter list; returns how many."""
    found = depth = 0
    for at in range(count):
        if is_mark(hashes, kinds, at, BRACE):
            depth += _parameters_before(hashes, kinds, openers, at) >= 0
            continue
        if openers[at] < 0 or not is_mark(hashes, kinds, at, UNBRACE):
            continue
        brace = openers[at]
        parameters = _parameters_before(hashes, kinds, openers, brace)
        if parameters < 0:
            continue
        depth = max(0, depth - 1)
        if depth >= MAX_DEPTH or at - brace > MAX_BODY_TOKENS:
            continue
        value = _body_hash(hashes, kinds, brace + 1, at, hashes[parameters - 1], least)
        if value:
            values[found], firsts[found], lasts[found] = value, parameters - 1, at
            found += 1
    return found


@kernel
def _families(data, start, stop):
    """Whether a text may hold functions of PYTHON, of languages with BRACES, or both."""
    found = 0
    for at in range(start, stop):
        if data[at] == BRACE:
            found |= BRACES
        elif data[at] == _D and at + 3 < stop and data[at + 1] == _E and data[at + 2] == _F and data[at + 3] == _SPACE:
            found |= PYTHON
    return found


@kernel
def column_functions(data, offsets, least):
    """The functions of every row.

    Args:
        least: bodies of fewer tokens are left out: they are everybody's.

    Returns:
        [functions] arrays: the row, the hash, and the bytes of the row from where to where.
    """
    room = 8
    for row in range(offsets.size - 1):
        size = offsets[row + 1] - offsets[row]
        if size <= MAX_TEXT_BYTES:
            room = max(room, size)
    hashes, kinds = np.empty(room, np.uint64), np.empty(room, np.uint8)
    starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
    columns, openers = np.empty(room, np.int32), np.empty(room, np.int32)
    functions = room // 2  # a function has a bracket of each sort, or `def` and a colon
    values, firsts, lasts = np.empty(functions, np.uint64), np.empty(functions, np.int32), np.empty(functions, np.int32)
    rows_out, values_out = np.empty(64, np.int64), np.empty(64, np.uint64)
    starts_out, ends_out = np.empty(64, np.int64), np.empty(64, np.int64)
    total = 0
    for row in range(offsets.size - 1):
        if offsets[row + 1] - offsets[row] > MAX_TEXT_BYTES:
            continue
        families = _families(data, offsets[row], offsets[row + 1])
        for family in (PYTHON, BRACES):
            if not families & family:
                continue
            count = lex(data, offsets[row], offsets[row + 1], family == PYTHON, hashes, kinds, starts, ends, columns, openers)
            if family == PYTHON:
                found = _python_functions(hashes, kinds, columns, openers, count, least, values, firsts, lasts)
            else:
                found = _brace_functions(hashes, kinds, openers, count, least, values, firsts, lasts)
            while total + found > rows_out.size:
                rows_out, values_out = _wider(rows_out, total), _wider(values_out, total)
                starts_out, ends_out = _wider(starts_out, total), _wider(ends_out, total)
            for i in range(found):
                rows_out[total], values_out[total] = row, values[i]
                starts_out[total], ends_out[total] = starts[firsts[i]] - offsets[row], ends[lasts[i]] - offsets[row]
                total += 1
    return rows_out[:total], values_out[:total], starts_out[:total], ends_out[:total]


@kernel
def _wider(array, filled):
    wider = np.empty(2 * array.size + 64, array.dtype)
    wider[:filled] = array[:filled]
    return wider
