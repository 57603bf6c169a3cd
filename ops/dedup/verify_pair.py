"""Two texts of a cluster: what they share, and whether one could go for the other's sake."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ops.dedup.config import FuzzyDedupConfig
from ops.dedup.witnesses import Continuations, share_that_sides
from ops.hashing.code_points import case_folding
from ops.hashing.continuations import longest_own_run
from ops.hashing.kernels import folded_windows, shared_count

WORD_NGRAM, CHAR_NGRAM = 3, 5
REMEMBERED_BYTES = 1 << 18  # of a text; its hashes take about 25 times as much
PROSE_SHARE = 0.9  # letters and spaces of all characters: novels 0.95 to 0.98, source code 0.70 to 0.90, 0.85 in the middle
WORTH_A_LOOK = 0.4  # Jaccard of word 3-grams; pairs below it are spared the look at their characters


@dataclass(frozen=True)
class Member:
    """A document of a cluster. `text` is UTF-8."""

    number: int
    id: str
    is_held_out: bool
    chars: int
    text: bytes
    buckets: frozenset[int]

    @property
    def words(self) -> "Grams":
        return self._remembered("words", lambda: Grams.of(self.text, by_word=True, width=WORD_NGRAM))

    @property
    def characters(self) -> "Grams":
        return self._remembered("characters", lambda: Grams.of(self.text, by_word=False, width=CHAR_NGRAM))

    @cached_property
    def is_prose(self) -> bool:
        """Hardly anything but words. In source code, formulas and lists of commands one mark makes another text."""
        text = self.text.decode("utf-8", "replace")
        return sum(c.isalpha() or c.isspace() for c in text) >= PROSE_SHARE * len(text)

    @property
    def word_continuations(self) -> Continuations:
        return self._remembered("word continuations", lambda: Continuations.of(self.text, by_word=True))

    @property
    def char_continuations(self) -> Continuations:
        return self._remembered("char continuations", lambda: Continuations.of(self.text, by_word=False))

    def _remembered[T](self, name: str, make: Callable[[], T]) -> T:
        """Made once, but of a long text each time: neighbours and kept texts stay at hand, forty members in all."""
        if len(self.text) > REMEMBERED_BYTES:
            return make()
        known: dict[str, T] = self.__dict__  # what a cached property does, too
        if name not in known:
            known[name] = make()
        return known[name]


@dataclass(frozen=True)
class Grams:
    """Hashes of a text's n-grams, sorted, with repeats; its units (words or characters) and folded characters."""

    hashes: NDArray[np.uint64]
    units: int
    chars: int

    @classmethod
    def of(cls, text: bytes, *, by_word: bool, width: int) -> "Grams":
        data = np.frombuffer(text, np.uint8)
        offsets = np.array([0, len(text)], np.int64)
        return cls(*folded_windows(data, offsets, 0, case_folding(), by_word, width, len(text)))


@dataclass(frozen=True)
class Similarity:
    """Of a member and a kept text, by their n-grams, repeats counted.

    containment: share of the member's that the kept text has. contains: share of the kept text's that the member
    has. jaccard: shared of all.
    """

    containment: float
    contains: float
    jaccard: float
    by_characters: bool


def compare(member: Member, kept: Member, max_chars_per_token: float) -> Similarity:
    """How much two texts have in common, by words or, where words say little, by characters."""
    by_characters = any(side.chars > max_chars_per_token * side.units for side in (member.words, kept.words))
    a, b = (member.characters, kept.characters) if by_characters else (member.words, kept.words)
    if not len(a.hashes) or not len(b.hashes):
        return Similarity(0.0, 0.0, 0.0, by_characters)
    shared = int(shared_count(a.hashes, b.hashes))
    union = len(a.hashes) + len(b.hashes) - shared
    return Similarity(shared / len(a.hashes), shared / len(b.hashes), shared / union, by_characters)


def deciding_share(member: Member, kept: Member, similarity: Similarity) -> float:
    """Containment; of a train text beside a held-out one the larger of both directions, for either way it is a leak."""
    return max(similarity.containment, similarity.contains) if _is_leak_pair(member, kept) else similarity.containment


class Likeness(Enum):
    """How alike a member and a kept text are, and so who decides."""

    REDUNDANT = "nothing that counts would be lost"
    CLOSE = "versions of one text, unless the neighbours say that they are fillings of a template"
    AKIN = "versions of one text only if the neighbours say so"
    DIFFERENT = "two texts"


def likeness_of(member: Member, kept: Member, similarity: Similarity, config: FuzzyDedupConfig) -> Likeness:
    """Judge one pair by its own texts."""
    share = deciding_share(member, kept, similarity)
    contained = share >= config.min_containment
    if _is_leak_pair(member, kept):
        return Likeness.REDUNDANT if contained else Likeness.DIFFERENT
    if contained and (not similarity.by_characters or similarity.jaccard >= config.min_char_jaccard):
        return Likeness.REDUNDANT if share >= config.sure_containment else Likeness.CLOSE
    if similarity.by_characters or similarity.jaccard < WORTH_A_LOOK or not (member.is_prose and kept.is_prose):
        return Likeness.DIFFERENT
    if _own_passage(member, kept) > config.max_own_words:
        return Likeness.DIFFERENT
    a, b = member.characters, kept.characters
    shared = int(shared_count(a.hashes, b.hashes))
    jaccard = shared / (len(a.hashes) + len(b.hashes) - shared)
    if jaccard >= config.min_char_jaccard:
        return Likeness.CLOSE
    return Likeness.AKIN if jaccard >= config.min_sided_jaccard else Likeness.DIFFERENT


def _own_passage(member: Member, kept: Member) -> int:
    """Words of the longest passage that the kept text lacks."""
    return int(longest_own_run(np.frombuffer(member.text, np.uint8), case_folding(), WORD_NGRAM, kept.words.hashes))


def siding_of(member: Member, kept: Member, similarity: Similarity, neighbours: Sequence[Member], config: FuzzyDedupConfig) -> float | None:
    """Where the two texts part, the share of places at which their neighbours go on as one of them; None if nobody can tell.

    A neighbour is heard if it shares a bucket with the member; those that share most are heard first.
    """
    akin = [other for other in neighbours if other is not kept and other.chars <= config.max_text_chars and other.buckets & member.buckets]
    akin.sort(key=lambda other: -len(other.buckets & member.buckets))
    thirds = akin[: config.max_witnesses]
    if similarity.by_characters:
        return share_that_sides(member.char_continuations, kept.char_continuations, [third.char_continuations for third in thirds])
    return share_that_sides(member.word_continuations, kept.word_continuations, [third.word_continuations for third in thirds])


def _is_leak_pair(member: Member, kept: Member) -> bool:
    return kept.is_held_out and not member.is_held_out
