"""Text comparison decides: which members of one cluster are removed, and in favour of which kept text.

LSH only proposes. Without this step other factories lost 53-90 % of a source to chance and templates, half of
it wrongly. Members come longest first, held-out before train, so a text is only ever compared with *kept* texts
that are at least as long, and no representative is later removed itself.

- Texts are compared by word 3-grams, case folded, repeats counted: *containment* is the share of the member's
  3-grams that the kept text has. Counting repeats makes the measure honest on tables and lists.
- Where words are long (Chinese, minified code) a 3-gram of words is a whole passage; there character 5-grams
  stand in, and their Jaccard similarity must be high as well.
- Copies of prose with small edits all over fall short of that share: they count if their characters are much the same and
  nothing longer than a phrase would be lost.
- A pair so close may still be two fillings of one template; its neighbours in the cluster decide (`witnesses`).
- A train member is first held against held-out texts, in both directions: a train document that *contains* a
  held-out one leaks it too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ops.dedup.config import FuzzyDedupConfig
from ops.dedup.verify_pair import Likeness, Member, Similarity, compare, deciding_share, likeness_of, siding_of
from ops.dedup.witnesses import with_neighbours


@dataclass(frozen=True)
class Verdict:
    """What became of a member. `survivor` is set when it is removed; `nearest` and `similarity` when it was compared.

    is_template: the similarity would have removed it, but its neighbours say that the two are fillings of a template.
    """

    member: Member
    cluster_id: str
    survivor: Member | None
    nearest: Member | None
    similarity: Similarity | None
    comparisons: int
    is_template: bool = False

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
    for member, neighbours in with_neighbours(members):
        cluster_id = cluster_id or member.id
        if member.chars > config.max_text_chars:
            yield Verdict(member, cluster_id, None, None, None, 0)
            continue
        own = held_out if member.is_held_out else train
        rivals = own.nearest(member, config.max_comparisons)
        if not member.is_held_out:
            rivals = held_out.nearest(member, config.max_comparisons) + rivals
        verdict = _compare(member, rivals, neighbours, cluster_id, config)
        if verdict.survivor is None:
            own.add(member)
        yield verdict


def _compare(member: Member, rivals: list[Member], neighbours: list[Member], cluster_id: str, config: FuzzyDedupConfig) -> Verdict:
    """Compare with each rival in turn until one makes the member redundant."""
    best: tuple[float, Member, Similarity] | None = None
    is_template = False
    least_siding = {Likeness.CLOSE: config.min_siding, Likeness.AKIN: config.min_siding_of_akin}
    for count, rival in enumerate(rivals, 1):
        similarity = compare(member, rival, config.max_chars_per_token)
        likeness = likeness_of(member, rival, similarity, config)
        if likeness is Likeness.REDUNDANT:
            return Verdict(member, cluster_id, rival, rival, similarity, count)
        if likeness is not Likeness.DIFFERENT:
            siding = siding_of(member, rival, similarity, neighbours, config)
            if likeness is Likeness.CLOSE if siding is None else siding >= least_siding[likeness]:
                return Verdict(member, cluster_id, rival, rival, similarity, count)
            is_template |= likeness is Likeness.CLOSE
        share = deciding_share(member, rival, similarity)
        if best is None or share > best[0]:
            best = share, rival, similarity
    if best is None:
        return Verdict(member, cluster_id, None, None, None, 0)
    return Verdict(member, cluster_id, None, best[1], best[2], len(rivals), is_template)
