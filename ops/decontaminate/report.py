"""Flagged places for people to read: is it a leak, or does everybody write so?"""

import bisect
from dataclasses import dataclass, field
from typing import Any

EXCERPT_BYTES, MARGIN_BYTES = 600, 120


@dataclass
class Samples:
    """The places of the documents with the smallest ids of each evaluation: ids are hashes, so they are a fair draw, in any batching."""

    per_evaluation: int
    _kept: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)

    def offer(self, document: str, text: str, hit: dict[str, Any]) -> None:
        """Consider a document and the passage that it has most of."""
        kept = self._kept.setdefault(hit["evaluation"], [])
        if len(kept) >= self.per_evaluation and (not kept or document >= kept[-1][0]):
            return
        bisect.insort(kept, (document, _sample(document, text.encode(), hit)), key=lambda entry: entry[0])
        del kept[self.per_evaluation :]

    def listing(self) -> list[dict[str, Any]]:
        """All samples: by evaluation, then by document."""
        return [sample for _, kept in sorted(self._kept.items()) for _, sample in kept]


def _sample(document: str, text: bytes, hit: dict[str, Any]) -> dict[str, Any]:
    start, end = hit["start"], hit["end"]
    matched = text[start : min(end, start + EXCERPT_BYTES)]
    return {
        "id": document,
        **{name: hit[name] for name in ("evaluation", "item", "field", "kind", "start", "end")},
        "coverage": round(hit["coverage"], 6),
        "before": text[max(0, start - MARGIN_BYTES) : start].decode(errors="replace"),
        "matched": matched.decode(errors="replace"),
        "after": text[end : end + MARGIN_BYTES].decode(errors="replace"),
    }
