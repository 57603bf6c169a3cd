"""Which pages to read by sight: a score of how doubtful a page's text layer is, and the worst within a budget."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# What a parser gives for glyphs that it can't name: replacement characters, private use, controls.
UNNAMED = re.compile("[\ufffd\ue000-\uf8ff\0-\x08\x0e-\x1f\x80-\x9f]")
EMPTY = 0.9  # no threshold may lie above it: a page that came out empty is always tried by sight
SPARSE_CHARACTERS = 50  # a stamp or a page number over a scan


@dataclass(frozen=True, slots=True)
class PageFeatures:
    """What a page shows without being drawn. `image_share`: of the page's area under images, at most 1."""

    text: str
    image_share: float
    objects: int


def doubt(page: PageFeatures) -> float:
    """From 0, the text layer is the page, to 1, there is a page and no text layer.

    No text on a page of objects: from 0.9, and 1 where images cover it. Hardly any text over an image: 0.8. Glyphs
    without a name: by their share, half of them is 1. A page without objects is blank: 0.
    """
    characters = len("".join(page.text.split()))
    if characters == 0:
        return 0.0 if page.objects == 0 else EMPTY + (1 - EMPTY) * page.image_share
    unnamed = min(1.0, 2 * len(UNNAMED.findall(page.text)) / characters)
    sparse = 0.8 if characters < SPARSE_CHARACTERS and page.image_share > 0.5 else 0.0
    return max(unnamed, sparse)


def routed(scores: Sequence[float], budget: int, least: float) -> list[int]:
    """Pages to read by sight, in order: the `budget` most doubtful of those that score at least `least`, earlier first."""
    doubtful = [page for page, score in enumerate(scores) if score > 0 and score >= least]
    return sorted(sorted(doubtful, key=lambda page: (-scores[page], page))[:budget])
