"""A document as coloured runs of characters: red where the first model pays more, blue where it pays less, plain where neither does."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from model.eval.perplexity.gap import DocumentGap

LEVELS = 5  # shades of each colour
FULL_BITS = 4.0  # a byte; from here on it is the darkest shade
NEUTRAL_BITS = 0.2  # a byte; below it nothing is coloured, or the whole page glows
PICTURES = {"\n": "⏎\n", "\t": "⇥\t", "\u2028": "␤LS ", "\u2029": "␤PS ", "\u0085": "␤NEL ", "\x0b": "␋", "\x0c": "␌", "\r": "␍"}


@dataclass(frozen=True)
class Run:
    """Characters of one shade.

    Attributes:
        shade: -LEVELS to LEVELS, positive where the first model pays more; None where nothing counts.
        bits: by how many bits the first model pays more for all of them.
    """

    text: str
    shade: int | None
    bits: float


def heat_of(gap: DocumentGap, shown_bytes: int) -> tuple[list[Run], bool]:
    """The part of a document with the most that counts, as runs; and whether that is all of it.

    Control characters get a picture: a line separator would be invisible, and other programs would break lines at it.
    """
    start, end = _window(gap, shown_bytes)
    text = gap.document.text.encode()[start:end].decode(errors="ignore")  # a window may begin inside a character
    offset = start + _lead(gap.document.text.encode()[start:end])
    rows = list(_characters(gap, text, offset))
    runs = []
    for shade, group in groupby(rows, lambda row: row[1]):
        members = list(group)
        runs.append(Run("".join(_shown(character) for character, _, _ in members), shade, sum(bits for _, _, bits in members)))
    return runs, (start, end) == (0, len(gap.bits))


def shade_of(bits: float) -> int:
    """The shade of a byte."""
    if abs(bits) < NEUTRAL_BITS:
        return 0
    shade = min(LEVELS, 1 + int(LEVELS * (abs(bits) - NEUTRAL_BITS) / (FULL_BITS - NEUTRAL_BITS)))
    return shade if bits > 0 else -shade


def _characters(gap: DocumentGap, text: str, offset: int) -> Iterator[tuple[str, int | None, float]]:
    """(character, shade, bits) of each; the shade is of its mean byte."""
    first, last = gap.document.target
    for character in text:
        size = len(character.encode())
        bits = float(gap.bits[offset : offset + size].sum())
        yield character, shade_of(bits / size) if first <= offset < last else None, bits
        offset += size


def _window(gap: DocumentGap, shown_bytes: int) -> tuple[int, int]:
    """First and last byte shown: all, or the stretch with the largest sum of differences, whatever their sign."""
    size = len(gap.bits)
    if size <= shown_bytes:
        return 0, size
    sums = np.concatenate([[0.0], np.cumsum(np.abs(gap.bits))])
    start = int(np.argmax(sums[shown_bytes:] - sums[:-shown_bytes]))
    return start, start + shown_bytes


def _lead(data: bytes) -> int:
    """Bytes in front that belong to a character whose beginning isn't there."""
    return next((index for index, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)


def _shown(character: str) -> str:
    return PICTURES.get(character, character)
