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
    """Of a member and a kept text, by their n-grams, repeats counted.

    containment: share of the member's that the kept text has. contains: share of the kept text's that the member
    has. jaccard: shared of all.
    """

    containment: float
    contains: float
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

    @property
    def containment(self) -> float | None:
        """The share that decided."""
        if self.nearest is None or self.similarity is None:
            return None
        return deciding_share(self.member, self.nearest, self.similarity)


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
    best: tuple[float, Member, Similarity] | None = None
    for count, rival in enumerate(rivals, 1):
        similarity = compare(member, rival, config.max_chars_per_token)
        if is_redundant(member, rival, similarity, config):
            return Verdict(member, cluster_id, rival, rival, similarity, count)
        share = deciding_share(member, rival, similarity)
        if best is None or share > best[0]:
            best = share, rival, similarity
    if best is None:
        return Verdict(member, cluster_id, None, None, None, 0)
    return Verdict(member, cluster_id, None, best[1], best[2], len(rivals))


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


def is_redundant(member: Member, kept: Member, similarity: Similarity, config: FuzzyDedupConfig) -> bool:
    """Whether the member adds nothing that counts, or leaks a held-out text."""
    if deciding_share(member, kept, similarity) < config.min_containment:
        return False
    return _is_leak_pair(member, kept) or not similarity.by_characters or similarity.jaccard >= config.min_char_jaccard


def _is_leak_pair(member: Member, kept: Member) -> bool:
    return kept.is_held_out and not member.is_held_out
