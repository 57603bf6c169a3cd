"""Is it a copy with changes, or a template with other contents? Third texts of the cluster tell.

Where two versions of one text differ, one of them has the wording that the other versions have. Where two
fillings of one template differ, every further filling has a wording of its own. So at the places where a member and
a kept text part, their neighbours in the cluster are asked how they go on.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ops.hashing.code_points import case_folding
from ops.hashing.continuations import continuations, sides_taken

WINDOW = 16  # members before and after one, in the cluster's order by length: fillings of a template have similar lengths
WINDOW_BYTES = 16_000_000  # of the members ahead, at most
WORD_CONTEXT, CHAR_CONTEXT = 3, 8  # units that two texts must share beside the place where they part


@dataclass(frozen=True)
class Continuations:
    """See `ops.hashing.continuations`."""

    contexts: NDArray[np.uint64]
    nexts: NDArray[np.uint64]

    @classmethod
    def of(cls, text: bytes, *, by_word: bool) -> "Continuations":
        data = np.frombuffer(text, np.uint8)
        return cls(*continuations(data, case_folding(), by_word, WORD_CONTEXT if by_word else CHAR_CONTEXT))


def share_that_sides(one: Continuations, other: Continuations, thirds: Iterable[Continuations]) -> float | None:
    """Of the places where two texts part and a third knows the words beside, the share where it goes on as one of the two.

    None where no third text knows any.
    """
    known = agreeing = 0
    for third in thirds:
        counted, sided = sides_taken(one.contexts, one.nexts, other.contexts, other.nexts, third.contexts, third.nexts)
        known += counted
        agreeing += sided
    return agreeing / known if known else None


class HasText(Protocol):
    """A member, as far as this module minds."""

    @property
    def text(self) -> bytes: ...


def with_neighbours[M: HasText](members: Iterable[M]) -> Iterator[tuple[M, list[M]]]:
    """Each member with at most `WINDOW` members on either side of it, the nearest first."""
    rest = iter(members)
    past: deque[M] = deque(maxlen=WINDOW)
    ahead: deque[M] = deque()
    ahead_bytes = 0
    while True:
        while len(ahead) <= WINDOW and (not ahead or ahead_bytes < WINDOW_BYTES):
            member = next(rest, None)
            if member is None:
                break
            ahead.append(member)
            ahead_bytes += len(member.text)
        if not ahead:
            return
        member = ahead.popleft()
        ahead_bytes -= len(member.text)
        pairs = zip_longest(reversed(past), ahead)
        yield member, [neighbour for pair in pairs for neighbour in pair if neighbour is not None]
        past.append(member)
