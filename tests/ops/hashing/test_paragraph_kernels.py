"""Paragraph features and overlaps against the plain Python definition."""

import random

import numpy as np
import pyarrow as pa
import pytest

from ops.decontaminate.features import prefix_starts
from ops.hashing import definition, paragraphs
from ops.hashing.code_points import character_classes
from ops.hashing.columns import TextColumn

POOL = ["alpha", "Beta", "g.", "12", "--", "…", "漢字", "नि", "x\u00a0y", "\n", "\n\n", "\n \t\n", "\r\n", "\r\n\r\n", "\u2028", "\t"]


def random_texts(count: int) -> list[str]:
    rng = random.Random(4)
    return ["", "\n\n", "a b c", *(" ".join(rng.choices(POOL, k=rng.randint(0, 60))) for _ in range(count))]


@pytest.mark.parametrize(("width", "short"), [(4, 2), (4, 4), (3, 1), (13, 3)])
def test_features_agree_with_the_definition(width: int, short: int) -> None:
    texts = random_texts(150)
    column = TextColumn.of(pa.array(texts))
    found, starts = paragraphs.column_features(column.data, column.offsets, character_classes(), width, short)
    for row, text in enumerate(texts):
        expected = [feature for _, feature in definition.paragraph_features(text, width, short)]
        assert found[starts[row] : starts[row + 1]].tolist() == expected, repr(text)


def test_overlaps_agree_with_sets() -> None:
    rng = random.Random(9)
    texts = random_texts(120)
    column = TextColumn.of(pa.array(texts))
    every = sorted({feature for text in texts for _, feature in definition.paragraph_features(text, 3, 2)})
    known = [feature for feature in every if rng.random() < 0.5]
    meanings = np.array([[rng.choice((paragraphs.MISS, paragraphs.HIT, paragraphs.DROPPED)) for _ in known] for _ in range(2)], np.uint8)
    kinds = np.array([rng.randint(0, 1) for _ in texts])
    index, shift = np.array(known, np.uint64), np.uint64(64 - len(known).bit_length())
    overlaps, places, starts = paragraphs.column_overlaps(
        column.data, column.offsets, character_classes(), 3, 2, index, prefix_starts(index, shift), shift, meanings, kinds, 0.6
    )
    for row, text in enumerate(texts):
        meaning = dict(zip(known, meanings[kinds[row]].tolist(), strict=True))
        worst, hits = 0.0, []
        by_paragraph: dict[int, list[int]] = {}
        for paragraph, feature in definition.paragraph_features(text, 3, 2):
            by_paragraph.setdefault(paragraph, []).append(feature)
        for features in by_paragraph.values():
            counted = [f for f in features if meaning.get(f) != paragraphs.DROPPED]
            matched = [f for f in counted if meaning.get(f) == paragraphs.HIT]
            overlap = len(matched) / len(counted) if counted else 0.0
            worst = max(worst, overlap)
            hits += matched if overlap >= 0.6 else []
        assert overlaps[row] == worst
        assert index[places[starts[row] : starts[row + 1]]].tolist() == hits


def test_documents_are_counted_once_however_often_they_repeat_a_feature() -> None:
    texts = ["a b c\n\na b c", "a b c", "d e f"]
    column = TextColumn.of(pa.array(texts))
    found, starts = paragraphs.column_features(column.data, column.offsets, character_classes(), 3, 3)
    index = np.unique(found)
    shift = np.uint64(62)
    counts = np.zeros(len(index), np.int64)
    paragraphs.count_documents(found, starts, index, prefix_starts(index, shift), shift, counts)
    assert sorted(counts.tolist()) == [1, 2]


def test_every_entry_is_found_and_nothing_else() -> None:
    index = np.unique(np.random.default_rng(1).integers(0, 2**64, 500, np.uint64))
    index = np.union1d(index, np.array([0, 2**64 - 1], np.uint64))
    for bits in (1, 9, 12):
        shift = np.uint64(64 - bits)
        prefixes = prefix_starts(index, shift)
        assert [paragraphs.place_of(index, prefixes, shift, feature) for feature in index] == list(range(len(index)))
        absent = [np.uint64(int(feature) ^ 1) for feature in index if np.uint64(int(feature) ^ 1) not in index]
        assert {paragraphs.place_of(index, prefixes, shift, feature) for feature in absent} == {-1}
