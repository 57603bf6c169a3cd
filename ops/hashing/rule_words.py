# mypy: allow-untyped-defs, allow-untyped-calls
"""Words as the published rules count them, from code points; compiled.

A word is a run of letters, digits, marks and underscores, and a backslash before it. Inside it stand a full stop ("3.14",
"example.com"; not before a sentence's capital, "end.The"), a comma between digits, brackets and the like ("word(s"), and an
apostrophe between letters ("O'Brien"), while English endings are words of their own ("it 's", "do n't"). A full stop belongs
to a capital that stands alone ("J.", "U.S.") and to the words of `CLIPPED_WORDS`. Every other character is a word by itself;
runs of dots and dashes are one. The rules were published on the words of NLTK and spaCy; this comes near spaCy's English ones
at a hundredth of the cost. It differs where these know URLs, units and slang, and in formulas.
"""

import numpy as np

from ops.hashing.compiled import kernel
from ops.hashing.definition import FNV_OFFSET, FNV_PRIME
from ops.hashing.kernels import mix64
from ops.hashing.rule_tables import ALPHA, DECIMAL, JOINT, LONGEST_CLIPPED, LOWER, PUNCTUATION, RUN, SPACE, SYMBOL, TERMINAL, UPPER, WORD

_FNV_OFFSET, _FNV_PRIME = np.uint64(FNV_OFFSET), np.uint64(FNV_PRIME)
_STOP, _COMMA, _APOSTROPHE, _QUOTE, _BACKSLASH = (np.uint32(ord(mark)) for mark in ".,'’\\")
_N, _T, _S, _M, _D, _L, _R, _E, _V = (np.uint32(ord(letter)) for letter in "ntsmdlrev")


FIRST = np.int64(0)  # where a text begins; for a literal 0 numba compiles every function once more
PADDING = 4  # zeros behind a text's code points and bits, so that looking ahead needs no question


@kernel
def fill_bits(codes, count, table, bits):
    """The bits of `count` code points, and the padding behind both."""
    for i in range(count):
        bits[i] = table[codes[i]] if codes[i] < table.size else 0
    codes[count : count + PADDING] = 0
    bits[count : count + PADDING] = 0


@kernel
def _is_apostrophe(code):
    return code in (_APOSTROPHE, _QUOTE)


@kernel
def _ending_after(codes, bits, at):
    """Letters of an English ending behind the apostrophe at `at` ('s, 'm, 'd, 't, 'll, 're, 've); 0 if it is none."""
    first, second = codes[at + 1], codes[at + 2]
    if not bits[at + 2] & WORD:
        return 1 if first in (_S, _M, _D, _T) else 0
    if bits[at + 3] & WORD:
        return 0
    return 2 if (first == _L and second == _L) or (first in (_R, _V) and second == _E) else 0


@kernel
def _is_not(codes, bits, start, at):
    """Whether "n't" stands at `at`, behind the verb it was split off from."""
    if at == start or codes[at] != _N or codes[at + 2] != _T or not _is_apostrophe(codes[at + 1]):
        return False
    return bits[at - 1] & ALPHA != 0 and bits[at + 3] & WORD == 0


@kernel
def hash_of(codes, start, stop):
    value = _FNV_OFFSET
    for i in range(start, stop):
        value = (value ^ np.uint64(codes[i])) * _FNV_PRIME
    return mix64(value)


@kernel
def _end_of_word(codes, bits, start, at, clipped):
    """Where the word that begins at `at` ends; `start` is where the text begins."""
    if codes[at] == _N and _is_not(codes, bits, start, at):
        return at + 3
    end = at
    while True:
        while bits[end] & WORD:
            end += 1
        code = codes[end]
        if code == _STOP:
            before, after = bits[end - 1], bits[end + 1]
            if after & WORD:
                if before & LOWER and after & UPPER:
                    return end
                end += 1
                continue
            if codes[end + 1] != _STOP:
                is_initial = before & UPPER != 0 and (end - 2 < at or not bits[end - 2] & WORD)
                if is_initial or (end - at <= LONGEST_CLIPPED and _is_clipped(hash_of(codes, at, end), clipped)):
                    return end + 1
            return end
        is_comma = code == _COMMA and bits[end - 1] & bits[end + 1] & DECIMAL
        if is_comma or (bits[end] & JOINT and bits[end + 1] & WORD):
            end += 1
            continue
        if not _is_apostrophe(code) or not bits[end - 1] & bits[end + 1] & ALPHA:
            return end
        ending = _ending_after(codes, bits, end)
        if ending == 1 and codes[end + 1] == _T:
            if codes[end - 1] == _N and end - 1 > at:
                return end - 1
            end += 2
        elif ending:
            return end
        else:
            end += 1


@kernel
def _is_clipped(value, clipped):
    for known in clipped:  # some forty, ascending: cheaper to compile than a search, and few words are short enough to ask
        if known >= value:
            return known == value
    return False


@kernel
def words_of(codes, bits, start, stop, clipped, hashes, starts, ends, kinds):
    """Split code points `codes[start:stop]` into words; behind `stop` lies `PADDING`.

    Args:
        hashes: gets each word's hash.
        starts: gets where each word begins.
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
        kind = bits[at]
        if kind & SPACE:
            at += 1
            continue
        end = at + 1
        if kind & WORD:
            end = _end_of_word(codes, bits, start, at, clipped)
        elif codes[at] == _BACKSLASH and bits[end] & WORD:
            end = _end_of_word(codes, bits, start, end, clipped)
        elif kind & RUN:
            while codes[end] == codes[at]:
                end += 1
        elif _is_apostrophe(codes[at]) and at > start and bits[at - 1] & ALPHA:
            end += _ending_after(codes, bits, at)
        value = _FNV_OFFSET
        some, all_ = np.uint16(0), np.uint16(0xFFFF)
        for i in range(at, end):
            value = (value ^ np.uint64(codes[i])) * _FNV_PRIME
            some |= bits[i]
            all_ &= bits[i]
        kinds[count] = (some & ALPHA) | (all_ & PUNCTUATION) | WORD * (all_ & SYMBOL == 0) | (all_ & TERMINAL) * (end == at + 1)
        hashes[count] = mix64(value)
        starts[count] = at
        ends[count + 1] = ends[count] + end - at
        count += 1
        at = end
    return count


@kernel
def sentences_of(kinds, first, last):
    """Sentences of the words from `first` to before `last`: one ends before the first word behind terminal marks and the
    punctuation that follows them."""
    if first >= last:
        return 0
    sentences, ended = 1, False
    for i in range(first, last):
        if kinds[i] & TERMINAL:
            ended = True
        elif ended and not kinds[i] & PUNCTUATION:
            sentences += 1
            ended = False
    return sentences
