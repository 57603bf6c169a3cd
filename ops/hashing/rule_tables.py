"""What the rule kernels know about characters: bits by code point, and the words that are spelt with a full stop."""

import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ops.hashing.code_points import CODE_POINTS
from ops.hashing.definition import word_hash

SPACE, WORD, ALPHA, DECIMAL, UPPER, LOWER, SYMBOL, TERMINAL, PUNCTUATION, LINE_BREAK, RUN, JOINT = (1 << bit for bit in range(12))

LINE_BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"  # where str.splitlines cuts
ASCII_SYMBOLS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
RUNS = ".-~+"  # repeated, they are one word: an ellipsis, a rule
JOINTS = '()[]{}|\\$!?;&#"@%'  # part nothing between two letters or digits: "word(s", "Th{PA", "print(x"
SENTENCE_TERMINALS = (  # Unicode's Sentence_Terminal: first and last code point of each stretch
    "!! .. ?? ։։ ؝؟ ۔۔ ܀܂ ߹߹ ࠷࠷ ࠹࠹ ࠽࠾ ।॥ ၊။ ።። ፧፨ ᙮᙮ ᜵᜶ ។៕ ᠃᠃ ᠉᠉ ᥄᥅ ᪨᪫ ᭎᭏ ᭚᭛ ᭞᭟ ᭽᭿ ᰻᰼ ᱾᱿ ‼‽ ⁇⁉ "
    "⳹⳻ ⸮⸮ ⸼⸼ ⹓⹔ 。。 ꓿꓿ ꘎꘏ ꛳꛳ ꛷꛷ ꡶꡷ ꣎꣏ ꤯꤯ ꧈꧉ ꩝꩟ ꫰꫱ ꯫꯫ ︒︒ ︕︖ ﹒﹒ ﹖﹗ ！！ ．． ？？ ｡｡"
)
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")  # Gopher's
CLIPPED = (  # end in a full stop that ends no sentence; a capital alone ("J.", "U.S.") does so by rule
    "Mr Mrs Ms Dr Prof St Jr Sr Inc Co Corp Ltd Bros vs etc e.g i.e a.m p.m cf Gen Gov Sen Rep Rev Lt Col Sgt Capt Mt Ave "
    "Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec"
)
CLIPPED_WORDS = frozenset(CLIPPED.split())
LONGEST_CLIPPED = max(map(len, CLIPPED_WORDS))


@cache
def character_bits() -> NDArray[np.uint16]:
    """Bits by code point, [CODE_POINTS]."""
    bits = np.array([_bits_of(chr(code)) for code in range(CODE_POINTS)], np.uint16)
    for stretch in SENTENCE_TERMINALS.split():
        bits[ord(stretch[0]) : ord(stretch[-1]) + 1] |= TERMINAL | SYMBOL
    bits.setflags(write=False)
    return bits


def _bits_of(character: str) -> int:
    category = unicodedata.category(character)
    is_symbol = category[0] == "P" or category == "Cc" or character in ASCII_SYMBOLS or character in "´～"
    return (
        SPACE * character.isspace()
        | WORD * (character.isalnum() or category[0] == "M" or character == "_")
        | ALPHA * character.isalpha()
        | DECIMAL * character.isdecimal()
        | UPPER * character.isupper()
        | LOWER * character.islower()
        | SYMBOL * is_symbol
        | PUNCTUATION * (category[0] == "P")
        | LINE_BREAK * (character in LINE_BREAKS)
        | RUN * (character in RUNS)
        | JOINT * (character in JOINTS)
    )


@cache
def stop_word_hashes() -> NDArray[np.uint64]:
    """In the order of `STOP_WORDS`."""
    return np.array([word_hash(word) for word in STOP_WORDS], np.uint64)


@cache
def clipped_word_hashes() -> NDArray[np.uint64]:
    """Sorted."""
    return np.sort(np.array([word_hash(word) for word in CLIPPED_WORDS], np.uint64))
