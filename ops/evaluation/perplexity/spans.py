"""From tokens to bytes: which bytes of a text each token stands for, and what each byte costs.

Two models with different vocabularies can only be compared where both speak about the same thing, which is bytes. Every byte belongs
to exactly one token (or to a few that can't be told apart), so byte losses of a document sum to its token losses.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ops.tokenizer import SPECIALS


def encode_with_ends(tokenizer: Tokenizer, text: str) -> tuple[list[int], NDArray[np.int64]]:
    """Token ids of a text, and behind which byte each ends.

    Returns:
        ids, and int64 [tokens] that never fall, the last of them the text's bytes. A token that ends where the one before it does
        stands for no byte of its own; what it costs is the next one's (`byte_nats`).
    """
    encoding = tokenizer.encode(text, add_special_tokens=False)
    ids: list[int] = encoding.ids
    spelled = [_bytes_of(token) for token in encoding.tokens]
    if b"".join(spelled) == text.encode():  # byte-level: each token says which bytes it is
        return ids, np.cumsum([len(part) for part in spelled], dtype=np.int64)
    return ids, _ends_of_offsets(text, encoding.offsets)


def byte_nats(nats: NDArray[np.float64], ends: NDArray[np.int64]) -> NDArray[np.float64]:
    """What each byte costs, float64 [bytes]: a token's nats in equal parts over its bytes.

    Args:
        nats: [tokens]; ends: [tokens], as `encode_with_ends` gives them.

    Raises:
        ValueError: there are nats and no byte they could be about.
    """
    if not len(ends):
        return np.zeros(0)
    starts = np.concatenate([[0], ends[:-1]])
    sizes = ends - starts
    if not ends[-1]:
        raise ValueError("the tokens stand for no byte; a text that is scored has one at least")
    has_bytes = np.flatnonzero(sizes)
    owner = np.searchsorted(has_bytes, np.arange(len(ends)))  # the next token with bytes, or the last one of all
    sums = np.bincount(np.minimum(owner, len(has_bytes) - 1), weights=nats, minlength=len(has_bytes))
    return np.repeat(sums / sizes[has_bytes], sizes[has_bytes])


def _ends_of_offsets(text: str, offsets: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Ends in bytes from the characters that the tokenizer says each token is about.

    Tokens that share a character (parts of an astral one) can't be told apart: all but the last end where the first began. What is
    between two tokens (space that was trimmed) belongs to the second.
    """
    sizes = np.concatenate([[0], np.cumsum([len(character.encode()) for character in text])])
    ends = np.zeros(len(offsets), np.int64)
    reached = 0
    for index, (_, end) in enumerate(offsets):
        following = offsets[index + 1][0] if index + 1 < len(offsets) else len(text)
        if following >= end:  # the next token begins a new character
            reached = max(reached, end)
        ends[index] = sizes[reached]
    if len(ends):
        ends[-1] = sizes[-1]
    return ends


def _byte_level_alphabet() -> dict[str, int]:
    """The byte behind each character that byte-level vocabularies are spelled in: printable Latin-1 is itself, the rest follows 255."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


ALPHABET = _byte_level_alphabet()


def _bytes_of(token: str) -> bytes:
    """The bytes that a byte-level token spells; of a special token, or one in another spelling, nothing that could match a text."""
    if token in SPECIALS:
        return b""
    return bytes(ALPHABET[character] for character in token) if ALPHABET.keys() >= set(token) else b"\xff"
