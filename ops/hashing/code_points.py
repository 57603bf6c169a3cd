"""What the kernels know about Unicode: tables by code point, made from this Python's character database.

A character's class changes only when it is first assigned, so two Python versions differ on text in
brand-new scripts and nowhere else.
"""

import string
import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

CODE_POINTS = 0x34000  # every letter up to CJK extension H; beyond lie no letters, case pairs or spaces
SPACE_CODE = 0x20
DROP_CODE = 0xFFFFFFFF

SPACE, LETTER, DIGIT, MARK, PUNCTUATION, UNSPACED = 1, 2, 4, 8, 16, 32  # bits of `character_classes`
ORNAMENTS = "#%&*/@[\\]_{}"  # ASCII marks that belong to markup and code rather than to sentences

UNSPACED_SCRIPTS = (  # written without spaces between words
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x109F),  # Tibetan, Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # kana
    (0x3400, 0x9FFF),  # Chinese characters
    (0x20000, CODE_POINTS - 1),
)


@cache
def character_classes() -> NDArray[np.uint8]:
    """Bits by code point, [CODE_POINTS]: `str.isspace`, `str.isalpha`, `str.isdigit`, and the Unicode categories
    M (vowel signs, accents) and P without `ORNAMENTS`; and whether it is of one of the `UNSPACED_SCRIPTS`."""
    classes = np.array([_class_of(character) for _, character in _characters()], np.uint8)
    for first, last in UNSPACED_SCRIPTS:
        classes[first : last + 1] |= UNSPACED
    return _frozen(classes)


def _class_of(character: str) -> int:
    category = unicodedata.category(character)
    return (
        SPACE * character.isspace()
        | LETTER * character.isalpha()
        | DIGIT * character.isdigit()
        | MARK * (category[0] == "M")
        | PUNCTUATION * (category[0] == "P" and character not in ORNAMENTS)
    )


@cache
def case_folding() -> NDArray[np.uint32]:
    """Code point to code point, [CODE_POINTS]: lower case where it is one character; every white space to a space."""
    folding = np.arange(CODE_POINTS, dtype=np.uint32)
    for code, character in _characters():
        lower = character.lower()
        if character.isspace():
            folding[code] = SPACE_CODE
        elif len(lower) == 1:
            folding[code] = ord(lower)
    return _frozen(folding)


@cache
def case_folding_without_punctuation() -> NDArray[np.uint32]:
    """Like `case_folding`, and ASCII punctuation is dropped (SlimPajama's cleaning for MinHash)."""
    folding = case_folding().copy()
    folding[[ord(mark) for mark in string.punctuation]] = DROP_CODE
    return _frozen(folding)


def _characters() -> list[tuple[int, str]]:
    return [(code, chr(code)) for code in range(CODE_POINTS)]


def _frozen[T: np.generic](table: NDArray[T]) -> NDArray[T]:
    table.setflags(write=False)
    return table
