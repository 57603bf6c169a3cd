"""How good an output is, by the same measure for every candidate. Standard library only."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence


def extraction_f1(found: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """F1, precision and recall of word 4-grams, each averaged over pages (the article benchmark's own measure)."""
    precision = recall = 0.0
    for ours, truth in zip(found, wanted, strict=True):
        a, b = _four_grams(ours), _four_grams(truth)
        shared = (a & b).total()
        precision += shared / max(1, a.total())
        recall += shared / max(1, b.total())
    p, r = precision / len(wanted), recall / len(wanted)
    return {"F1": 2 * p * r / (p + r) if p + r else 0.0, "precision": p, "recall": r}


def _four_grams(text: str) -> Counter[tuple[str, ...]]:
    words = re.findall(r"\w+", text)
    return Counter(tuple(words[i : i + 4]) for i in range(max(1, len(words) - 3)))


def accuracy(found: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    return {"accuracy": sum(a == b for a, b in zip(found, wanted, strict=True)) / len(wanted)}


def removal(removed: set[str], copies: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Share of the planted copies that were removed, by kind; either side of a pair counts."""
    return {kind: sum(name in removed for name in names) / len(names) for kind, names in copies.items() if names}
