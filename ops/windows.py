"""Cuts long texts where byte-level BPE can't notice, so that encoding a book costs time in proportion to its length.

A cut is *safe* if the pre-tokenizer of `ops.tokenizer` ends a piece there both in the whole text and in its
first part: then the windows' ids, joined, are the whole text's ids.
"""

from collections.abc import Iterator
from unicodedata import category


def windows(text: str, max_chars: int) -> Iterator[tuple[str, bool]]:
    """Split a text into windows of at most `max_chars` characters.

    Yields:
        (window, whether it ends at a safe cut or at the text's end). The windows joined are the text. A window
        without any safe cut in its second half is cut where it is full: some ids may then differ from whole-text
        encoding, the decoded text never does.
    """
    start = 0
    while len(text) - start > max_chars:
        cut = _last_safe_cut(text, start + max_chars // 2, start + max_chars)
        end = start + max_chars if cut is None else cut
        yield text[start:end], cut is not None
        start = end
    yield text[start:], True


def is_safe_cut(text: str, position: int) -> bool:
    """Whether `text` may be cut before `position` (1 <= position < len(text)).

    Three places, each a proof by the pattern: no piece holds a blank after a non-blank; none goes on from a line
    feed to a non-blank; a run of letters ends at punctuation or a symbol. None of them depends on what follows.
    """
    before, after = text[position - 1], text[position]
    if after in " \t":
        return not before.isspace()
    if before == "\n":
        return not after.isspace()
    return before.isalpha() and category(after)[0] in "PS"


def _last_safe_cut(text: str, low: int, high: int) -> int | None:
    return next((position for position in range(high, low, -1) if is_safe_cut(text, position)), None)
