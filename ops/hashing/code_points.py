"""What the kernels know about Unicode: tables by code point, made from this Python's character database.

A character's class changes only when it is first assigned, so two Python versions differ on text in
brand-new scripts and nowhere else.
"""

import string
from functools import cache

import numpy as np
from numpy.typing import NDArray

CODE_POINTS = 0x34000  # every letter up to CJK extension H; beyond lie no letters, case pairs or spaces
SPACE_CODE = 0x20
DROP_CODE = 0xFFFFFFFF

SPACE, LETTER, DIGIT, UPPER = 1, 2, 4, 8  # bits of `character_classes`


@cache
def character_classes() -> NDArray[np.uint8]:
    """Bits by code point, [CODE_POINTS]: `str.isspace`, `str.isalpha`, `str.isdigit`, `str.isupper`."""
    classes = np.zeros(CODE_POINTS, np.uint8)
    for code, character in _characters():
        classes[code] = (
            SPACE * character.isspace() | LETTER * character.isalpha() | DIGIT * character.isdigit() | UPPER * character.isupper()
        )
    return _frozen(classes)


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
