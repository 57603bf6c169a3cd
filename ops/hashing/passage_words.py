# mypy: allow-untyped-defs, allow-untyped-calls
"""Words as decontamination compares them, with their places in the text; compiled.

A word is a run of letters, marks and digits in lower case; in scripts without spaces every character is one. All
else separates: case, punctuation, line breaks, white space and markup (tags, entities, link targets, the names of
LaTeX commands) don't count, so a re-wrapped passage has the words of the first one.
"""

import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ops.hashing.code_points import CODE_POINTS, DIGIT, LETTER, MARK, SPACE, UNSPACED, case_folding, character_classes
from ops.hashing.compiled import kernel
from ops.hashing.definition import FNV_OFFSET, FNV_PRIME
from ops.hashing.kernels import mix64, next_code_point

HAS_LETTER, BOUNDARY, PARAGRAPH = 1, 2, 4  # bits of a word: and what stands before it (more than a space; a blank line)

_FNV_OFFSET, _FNV_PRIME = np.uint64(FNV_OFFSET), np.uint64(FNV_PRIME)
_HARD, _SOFT, _NEWLINE, _IGNORED = (np.uint32(value) for value in range(4))  # codes of what is in no word
_IN_WORD, _LETTER, _ALONE = (np.uint32(1 << bit) for bit in (31, 30, 29))  # bits of what is, beside its folded code point
_CODE = np.uint32((1 << 18) - 1)
_SOFT_MARKS = ",'\u2018\u2019-\u2010\u2011_"  # stand inside sentences and names: no boundary
_ONE_CASE = {"\u03c2": "\u03c3", "\u0130": "i", "\u0131": "i"}  # final sigma, Turkish dotted and dotless i: what upper case makes equal
_NEWLINES = "\n\x0c\x85\u2028\u2029"
_MAX_TAG, _MAX_ENTITY, _MAX_TARGET, _MAX_COMMAND = 256, 10, 512, 32  # bytes looked ahead for the end of markup
_LESS, _GREATER, _AMPERSAND, _SEMICOLON, _BACKSLASH, _BRACKET, _OPEN, _CLOSE, _BRACE, _SLASH, _BANG, _HASH = (
    ord(mark) for mark in "<>&;\\](){/!#"
)


@cache
def word_codes() -> NDArray[np.uint32]:
    """What each code point is to a word, [CODE_POINTS]. Format characters (soft hyphens, joiners) are passed over."""
    classes, folding = character_classes(), case_folding().copy()
    for character, other in _ONE_CASE.items():
        folding[ord(character)] = ord(other)
    codes = np.where(classes & SPACE != 0, _SOFT, _HARD).astype(np.uint32)
    in_word = (classes & (LETTER | DIGIT | MARK)) != 0
    alone = np.where(classes & UNSPACED != 0, _ALONE, np.uint32(0))
    letter = np.where(classes & LETTER != 0, _LETTER, np.uint32(0))
    codes = np.where(in_word, folding | _IN_WORD | letter | alone, codes).astype(np.uint32)
    codes[[ord(mark) for mark in _SOFT_MARKS]] = _SOFT
    codes[[ord(mark) for mark in _NEWLINES]] = _NEWLINE
    codes[[code for code in range(CODE_POINTS) if unicodedata.category(chr(code)) == "Cf" or 0xFE00 <= code <= 0xFE0F]] = _IGNORED
    codes.setflags(write=False)
    return codes


@kernel
def _is_ascii_letter(byte):
    return 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A


@kernel
def _after_tag(data, at, stop):
    """Past the `>` of a tag that opens before `at`; `at` itself if none does."""
    if at >= stop or not (_is_ascii_letter(data[at]) or data[at] == _SLASH or data[at] == _BANG):
        return at
    for i in range(at, min(stop, at + _MAX_TAG)):
        if data[i] == _GREATER:
            return i + 1
        if data[i] == _LESS:
            return at
    return at


@kernel
def _after_entity(data, at, stop):
    for i in range(at, min(stop, at + _MAX_ENTITY)):
        if data[i] == _SEMICOLON:
            return i + 1
        if not (_is_ascii_letter(data[i]) or 0x30 <= data[i] <= 0x39 or data[i] == _HASH):
            return at
    return at


@kernel
def _after_target(data, at, stop):
    """Past the target of a Markdown link whose `]` stands before `at`."""
    if at >= stop or data[at] != _OPEN:
        return at
    for i in range(at + 1, min(stop, at + _MAX_TARGET)):
        if data[i] == _CLOSE:
            return i + 1
        if data[i] <= 0x20:
            return at
    return at


@kernel
def _after_command(data, at, stop):
    """Past the name of a LaTeX command with an argument."""
    for i in range(at, min(stop, at + _MAX_COMMAND)):
        if data[i] == _BRACE:
            return i
        if not _is_ascii_letter(data[i]):
            return at
    return at


@kernel
def _after_markup(data, code, at, stop):
    if code == _LESS:
        return _after_tag(data, at, stop)
    if code == _AMPERSAND:
        return _after_entity(data, at, stop)
    if code == _BRACKET:
        return _after_target(data, at, stop)
    if code == _BACKSLASH:
        return _after_command(data, at, stop)
    return at


@kernel
def scan_words(data, start, stop, codes, words, starts, ends, kinds):
    """The words of one text.

    Args:
        codes: `word_codes()`.
        words, starts, ends, kinds: filled here, with room for half as many entries as there are bytes, and two: hashes, byte offsets in
            `data`, and bits HAS_LETTER, BOUNDARY, PARAGRAPH.

    Returns:
        How many words there are.
    """
    count = newlines = 0
    value, letters, in_word, alone = _FNV_OFFSET, np.uint32(0), False, False
    before = BOUNDARY | PARAGRAPH
    at = start
    while at < stop:
        here = at
        code = np.uint32(data[at])
        if code < 0x80:
            at += 1
        else:
            code, at = next_code_point(data, at, stop)
        entry = codes[code] if code < codes.size else _HARD
        if entry & _IN_WORD:
            if in_word and (alone or entry & _ALONE):
                words[count] = mix64(value)
                kinds[count] = before | (letters & _LETTER != 0)
                count += 1
                value, letters, in_word, before = _FNV_OFFSET, np.uint32(0), False, 0
            if not in_word:
                starts[count] = here
                in_word = True
            value = (value ^ np.uint64(entry & _CODE)) * _FNV_PRIME
            alone = entry & _ALONE != 0
            letters |= entry
            while at < stop and not alone:  # ASCII, which most words are made of, needs none of the questions above
                entry = codes[data[at]]
                if data[at] >= 0x80 or not entry & _IN_WORD:
                    break
                value = (value ^ np.uint64(entry & _CODE)) * _FNV_PRIME
                letters |= entry
                at += 1
            ends[count] = at
            continue
        if entry == _IGNORED:
            continue
        if in_word:
            words[count] = mix64(value)
            kinds[count] = before | (letters & _LETTER != 0)
            count += 1
            value, letters, in_word, before, newlines = _FNV_OFFSET, np.uint32(0), False, 0, 0
        if entry == _NEWLINE:
            newlines += 1
            before |= BOUNDARY | (PARAGRAPH if newlines == 2 else 0)
        elif entry == _HARD:
            newlines = 0
            before |= BOUNDARY
            at = _after_markup(data, code, at, stop)
    if in_word:
        words[count] = mix64(value)
        kinds[count] = before | (letters & _LETTER != 0)
        count += 1
    return count
