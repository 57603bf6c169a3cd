"""Verified near-duplicates end to end: planted copies go, fillings of templates stay, whatever the seed."""

import random
from pathlib import Path

import pytest

from ops.dedup.config import FuzzyDedupConfig, MinhashConfig
from ops.dedup.fuzzy import fuzzy_duplicates
from ops.dedup.minhash import minhash
from ops.shards import read_table
from tests.builders import run_program
from tests.ops.dedup.plants import EDITS, char_jaccard, fillings, near_copy, prose
from tests.ops.normalized import id_of, normalized


def removed(directory: Path, texts: list[str]) -> set[str]:
    """Ids of the documents that go."""
    source = normalized(directory / "in", texts)
    signed = run_program(minhash, MinhashConfig(), directory / "minhash", normalized=source)
    result = run_program(fuzzy_duplicates, FuzzyDedupConfig(), directory / "out", normalized={"s": source}, minhash={"s": signed})
    rows = [row for name in result.names if name.endswith(".parquet") for row in read_table(result, name).to_pylist()]
    return {row["id"] for row in rows if row["is_duplicate"]}


@pytest.mark.parametrize("seed", [11, 12])
def test_98_in_100_planted_copies_go_and_no_filling_of_a_template(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    groups, families = [], []
    for _ in range(100):
        text = prose(rng, rng.choice([60, 120, 300, 800]))
        groups.append([text, *(near_copy(rng, text, rng.choice(list(EDITS)), 0.9) for _ in range(rng.choice([1, 1, 2, 5])))])
    for _ in range(40):
        words, slots, slot_words = rng.choice([40, 100, 250, 500]), rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 5])
        families.append(fillings(rng, words, slots, slot_words, rng.choice([3, 5, 20])))
    assert min(char_jaccard(group[0], copy) for group in groups for copy in group) >= 0.9
    assert sum(char_jaccard(family[0], family[1]) >= 0.9 for family in families) >= 10  # as close as the copies
    gone = removed(tmp_path, [text for group in groups + families for text in group])
    assert [text for family in families for text in family if id_of(text) in gone] == []
    kept = [sum(id_of(text) not in gone for text in set(group)) for group in groups]
    copies = sum(len(set(group)) - 1 for group in groups)
    assert min(kept) >= 1
    assert (copies - sum(kept) + len(groups)) / copies >= 0.98
