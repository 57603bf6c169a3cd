"""Text comparison decides: which members of one cluster are removed, and in favour of which kept text.

LSH only proposes. Without this step other factories lost 53-90 % of a source to chance and templates, half of
it wrongly. Members come longest first, held-out before train, so a text is only ever compared with *kept* texts
that are at least as long, and no representative is later removed itself.

- Texts are compared by word 3-grams, case folded, repeats counted: *containment* is the share of the member's
  3-grams that the kept text has. Counting repeats makes the measure honest on tables and lists.
- Where words are long (Chinese, minified code) a 3-gram of words is a whole passage; there character 5-grams
  stand in, and their Jaccard similarity must be high as well.
- A train member is first held against held-out texts, in both directions: a train document that *contains* a
  held-out one leaks it too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ops.config import FuzzyDedupConfig
from ops.hashing.code_points import case_folding
from ops.hashing.kernels import folded_windows, shared_count

WORD_NGRAM, CHAR_NGRAM = 3, 5


@dataclass(frozen=True)
class Member:
    """A document of a cluster. `text` is UTF-8."""

    number: int
    id: str
    is_held_out: bool
    chars: int
    text: bytes
    buckets: frozenset[int]

    @cached_property
    def words(self) -> "Grams":
        return Grams.of(self.text, by_word=True, width=WORD_NGRAM)

    @cached_property
    def characters(self) -> "Grams":
        return Grams.of(self.text, by_word=False, width=CHAR_NGRAM)


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
    """containment: of the shorter side's n-grams in the other. jaccard: of the two, repeats counted."""

    containment: float
    jaccard: float
    by_characters: bool


@dataclass(frozen=True)
class Verdict:
    """What became of a member. `survivor` is set when it is removed; `nearest` and `similarity` when it was compared."""

    member: Member
    cluster_id: str
    survivor: Member | None
    nearest: Member | None
    similarity: Similarity | None
    comparisons: int


@dataclass
class Representatives:
    """Kept texts of one kind that later members are compared with: the first is the anchor, the longest."""

    max_count: int
    max_chars: int
    kept: list[Member] = field(default_factory=list)
    chars: int = 0

    def add(self, member: Member) -> None:
        """Keep one more, unless the caps are reached; the anchor always fits."""
        if self.kept and (len(self.kept) >= self.max_count or self.chars + member.chars > self.max_chars):
            return
        self.kept.append(member)
        self.chars += member.chars

    def nearest(self, member: Member, count: int) -> list[Member]:
        """At most `count` kept texts: the anchor, then those that share the most buckets with the member."""
        shared = Counter({place: len(kept.buckets & member.buckets) for place, kept in enumerate(self.kept[1:], 1)})
        ranked = sorted((place for place, buckets in shared.items() if buckets), key=lambda place: (-shared[place], place))
        return [*self.kept[:1], *(self.kept[place] for place in ranked[: count - 1])]


def judge(members: Iterable[Member], config: FuzzyDedupConfig) -> Iterator[Verdict]:
    """Decide on the members of one cluster, in the order given.

    Args:
        members: held-out before train, then longest first, then by number.
    """
    held_out = Representatives(config.max_representatives, config.max_representative_chars)
    train = Representatives(config.max_representatives, config.max_representative_chars)
    cluster_id: str | None = None
    for member in members:
        cluster_id = cluster_id or member.id
        if member.chars > config.max_text_chars:
            yield Verdict(member, cluster_id, None, None, None, 0)
            continue
        own = held_out if member.is_held_out else train
        rivals = own.nearest(member, config.max_comparisons)
        if not member.is_held_out:
            rivals = held_out.nearest(member, config.max_comparisons) + rivals
        verdict = _compare(member, rivals, cluster_id, config)
        if verdict.survivor is None:
            own.add(member)
        yield verdict


def _compare(member: Member, rivals: list[Member], cluster_id: str, config: FuzzyDedupConfig) -> Verdict:
    """Compare with each rival in turn until one makes the member redundant."""
    best: tuple[Member, Similarity] | None = None
    for count, rival in enumerate(rivals, 1):
        similarity = compare(member, rival, config.max_chars_per_token)
        if is_redundant(similarity, config):
            return Verdict(member, cluster_id, rival, rival, similarity, count)
        if best is None or similarity.containment > best[1].containment:
            best = rival, similarity
    nearest, similarity_of_best = best or (None, None)
    return Verdict(member, cluster_id, None, nearest, similarity_of_best, len(rivals))


def compare(left: Member, right: Member, max_chars_per_token: float) -> Similarity:
    """How much of the one text is in the other, by words or, where words say little, by characters."""
    by_characters = any(side.chars > max_chars_per_token * side.units for side in (left.words, right.words))
    a, b = (left.characters, right.characters) if by_characters else (left.words, right.words)
    shared, least = int(shared_count(a.hashes, b.hashes)), min(len(a.hashes), len(b.hashes))
    if not least:
        return Similarity(0.0, 0.0, by_characters)
    return Similarity(shared / least, shared / (len(a.hashes) + len(b.hashes) - shared), by_characters)


def is_redundant(similarity: Similarity, config: FuzzyDedupConfig) -> bool:
    """Whether the shorter of two texts adds nothing that counts."""
    if similarity.containment < config.min_containment:
        return False
    return not similarity.by_characters or similarity.jaccard >= config.min_char_jaccard
