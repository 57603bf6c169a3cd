"""What a removal did: per source counters, alarms, and samples for people to read."""

import bisect
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from ops.dedup.verify import Verdict
from ops.dedup.verify_pair import Member

EXCERPT_CHARS = 400
LOST_LINES = 12


@dataclass
class Samples:
    """The pairs with the smallest member ids of each source and outcome: ids are hashes, so they are a fair draw,
    and the same one in whatever order the clusters were judged."""

    per_source: int
    _kept: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = field(default_factory=lambda: defaultdict(list))

    def offer(self, verdict: Verdict, source: str, nearest_source: str) -> None:
        """Consider a verdict: removed in favour of another, or spared after a comparison."""
        if verdict.nearest is None or verdict.similarity is None:
            return
        outcome = "removed" if verdict.survivor else "spared"
        kept = self._kept[source, outcome]
        if len(kept) >= self.per_source and (not kept or verdict.member.id >= kept[-1][0]):
            return
        bisect.insort(kept, (verdict.member.id, _sample(verdict, verdict.nearest, source, nearest_source)), key=lambda item: item[0])
        del kept[self.per_source :]

    def listing(self) -> list[dict[str, Any]]:
        """All samples: by source, removed before spared, by id."""
        return [sample | {"outcome": outcome} for (_, outcome), kept in sorted(self._kept.items()) for _, sample in kept]


def _sample(verdict: Verdict, nearest: Member, source: str, nearest_source: str) -> dict[str, Any]:
    assert verdict.similarity is not None
    member_text, nearest_text = (side.text.decode("utf-8", "replace") for side in (verdict.member, nearest))
    nearest_lines = {line.strip() for line in nearest_text.splitlines()}
    lost = [line for line in member_text.splitlines() if line.strip() and line.strip() not in nearest_lines]
    return {
        "source": source,
        "id": verdict.member.id,
        "nearest_source": nearest_source,
        "nearest_id": nearest.id,
        "nearest_is_held_out": nearest.is_held_out,
        "containment": round(verdict.similarity.containment, 6),
        "contains": round(verdict.similarity.contains, 6),
        "jaccard": round(verdict.similarity.jaccard, 6),
        "by_characters": verdict.similarity.by_characters,
        "is_template": verdict.is_template,
        "chars": verdict.member.chars,
        "nearest_chars": nearest.chars,
        "text": member_text[:EXCERPT_CHARS],
        "nearest_text": nearest_text[:EXCERPT_CHARS],
        "lines_only_here": [line[:EXCERPT_CHARS] for line in lost[:LOST_LINES]],
        "lines_only_here_count": len(lost),
    }
