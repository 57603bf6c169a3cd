# mypy: allow-untyped-defs, allow-untyped-calls
"""Words as the published rules count them, from code points; compiled.

A word is a run of letters, digits, marks and underscores. Inside it stand a full stop ("3.14", "example.com"; not before a
sentence's capital, "end.The"), a comma between digits, and an apostrophe between letters ("O'Brien"), while English endings
are words of their own ("it 's", "do n't"). A full stop belongs to a capital that stands alone ("J.", "U.S.") and to the
words of `CLIPPED_WORDS`. Every other character is a word by itself; runs of dots, dashes and the like are one.
The rules were published on spaCy's or NLTK's words; this comes near them at a hundredth of the cost.
"""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.definition import FNV_OFFSET, FNV_PRIME
from ops.hashing.kernels import mix64
from ops.hashing.rule_tables import ALPHA, DECIMAL, LOWER, PUNCTUATION, RUN, SPACE, SYMBOL, TERMINAL, UPPER, WORD

_FNV_OFFSET, _FNV_PRIME = np.uint64(FNV_OFFSET), np.uint64(FNV_PRIME)
_STOP, _COMMA, _APOSTROPHE, _QUOTE = (np.uint32(ord(mark)) for mark in ".,'’")
_N, _T, _S, _M, _D, _L, _R, _E, _V = (np.uint32(ord(letter)) for letter in "ntsmdlrev")


@kernel
def bits_at(codes, at, stop, table):
    """The bits of the character at `at`; 0 at the end and beyond the table."""
    if at >= stop:
        return np.uint16(0)
    code = codes[at]
    return table[code] if code < table.size else np.uint16(0)


@kernel
def _is_apostrophe(code):
    return code in (_APOSTROPHE, _QUOTE)


@kernel
def _ending_after(codes, at, stop, table):
    """Letters of an English ending behind the apostrophe at `at` ('s, 'm, 'd, 't, 'll, 're, 've); 0 if it is none."""
    if at + 1 >= stop:
        return 0
    first = codes[at + 1]
    if not bits_at(codes, at + 2, stop, table) & WORD:
        return 1 if first in (_S, _M, _D, _T) else 0
    if bits_at(codes, at + 3, stop, table) & WORD:
        return 0
    second = codes[at + 2]
    return 2 if (first == _L and second == _L) or ((first in (_R, _V)) and second == _E) else 0


@kernel
def _is_not(codes, start, at, stop, table):
    """Whether "n't" stands at `at`, behind the verb it was split off from."""
    if at + 2 >= stop or at == start or codes[at] != _N or not _is_apostrophe(codes[at + 1]) or codes[at + 2] != _T:
        return False
    return bits_at(codes, at - 1, stop, table) & ALPHA != 0 and bits_at(codes, at + 3, stop, table) & WORD == 0


@kernel
def hash_of(codes, start, stop):
    value = _FNV_OFFSET
    for i in range(start, stop):
        value = (value ^ np.uint64(codes[i])) * _FNV_PRIME
    return mix64(value)


@kernel
def _end_of_word(codes, start, at, stop, table, clipped):
    """Where the word that begins at `at` ends; `start` is where the text begins."""
    if _is_not(codes, start, at, stop, table):
        return at + 3
    end = at
    while end < stop:
        kind = bits_at(codes, end, stop, table)
        if kind & WORD:
            end += 1
            continue
        code, before, after = codes[end], bits_at(codes, end - 1, stop, table), bits_at(codes, end + 1, stop, table)
        if _is_apostrophe(code) and before & ALPHA and after & ALPHA:
            ending = _ending_after(codes, end, stop, table)
            if ending == 0:
                end += 1
                continue
            if codes[end + 1] == _T and ending == 1:
                if codes[end - 1] == _N and end - 1 > at:
                    return end - 1
                end += 2  # "ain't" is split, "'t" behind another letter is not
                continue
            return end
        if code == _STOP and after & WORD and not (before & LOWER and after & UPPER):
            end += 1
            continue
        if code == _STOP and not after & WORD and not (end + 1 < stop and codes[end + 1] == _STOP):
            is_initial = before & UPPER and (end - 2 < at or not bits_at(codes, end - 2, stop, table) & WORD)
            if is_initial or _is_clipped(hash_of(codes, at, end), clipped):
                return end + 1
        if code == _COMMA and before & DECIMAL and after & DECIMAL:
            end += 1
            continue
        return end
    return end


@kernel
def _is_clipped(value, clipped):
    place = np.searchsorted(clipped, value)
    return place < clipped.size and clipped[place] == value


@kernel
def words_of(codes, start, stop, table, clipped, hashes, ends, kinds):
    """Split code points `codes[start:stop]` into words.

    Args:
        hashes: gets each word's hash.
        ends: [words + 1] gets how many characters the words up to and with this one have; `ends[0]` is 0.
        kinds: gets of each word: ALPHA if any character is a letter, WORD if any is no symbol, PUNCTUATION if all are,
            TERMINAL if it is one character that ends a sentence.

    Returns:
        How many words there are.
    """
    count = 0
    ends[0] = 0
    at = start
    while at < stop:
        kind = bits_at(codes, at, stop, table)
        if kind & SPACE:
            at += 1
            continue
        end = at + 1
        if kind & WORD:
            end = _end_of_word(codes, start, at, stop, table, clipped)
        elif kind & RUN:
            while end < stop and codes[end] == codes[at]:
                end += 1
        elif _is_apostrophe(codes[at]) and at > start and bits_at(codes, at - 1, stop, table) & ALPHA:
            end += _ending_after(codes, at, stop, table)
        alpha, named, punctuation = False, False, True
        for i in range(at, end):
            one = bits_at(codes, i, stop, table)
            alpha |= one & ALPHA != 0
            named |= one & SYMBOL == 0
            punctuation &= one & PUNCTUATION != 0
        hashes[count] = hash_of(codes, at, end)
        ends[count + 1] = ends[count] + end - at
        kinds[count] = ALPHA * alpha | WORD * named | PUNCTUATION * punctuation | TERMINAL * (end == at + 1 and kind & TERMINAL != 0)
        count += 1
        at = end
    return count


@kernel
def sentences_of(kinds, count):
    """Sentences of `count` words: one ends before the first word behind terminal marks and what punctuation follows them."""
    if count == 0:
        return 0
    sentences, ended = 1, False
    for i in range(count):
        if kinds[i] & TERMINAL:
            ended = True
        elif ended and not kinds[i] & PUNCTUATION:
            sentences += 1
            ended = False
    return sentences
