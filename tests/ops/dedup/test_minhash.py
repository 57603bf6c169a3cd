"""MinHash buckets: the S-curve, cleaning, and co-partitioning."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ops.dedup.config import MinhashConfig
from ops.dedup.minhash import Hasher, list_column, minhash
from ops.hashing import definition
from ops.hashing.columns import TextColumn
from ops.shards import read_table, shard_names
from tests.builders import run_program
from tests.ops.normalized import id_of, normalized


def buckets_of(texts: list[str], config: MinhashConfig) -> np.ndarray:
    found, signed = Hasher(config).buckets(TextColumn.of(pa.array(texts)))
    assert signed.all()
    return found


def pair(rng: random.Random, shared: int, own: int) -> tuple[str, str]:
    """Two texts of distinct words with Jaccard shared / (shared + 2 * own) over single words."""
    words = [f"{rng.getrandbits(64):x}" for _ in range(shared + 2 * own)]  # new ones each time: pairs must be independent
    left, right = words[: shared + own], words[:shared] + words[shared + own :]
    rng.shuffle(left)
    rng.shuffle(right)
    return " ".join(left), " ".join(right)


@pytest.mark.parametrize(("shared", "own"), [(60, 20), (70, 15), (72, 12), (80, 10), (85, 6)])
def test_pairs_meet_as_often_as_the_formula_says(shared: int, own: int) -> None:
    jaccard, trials = shared / (shared + 2 * own), 6_000
    rng = random.Random(shared)
    config = MinhashConfig(shingle="word", shingle_width=1)
    pairs = [pair(rng, shared, own) for _ in range(trials)]
    left, right = (buckets_of(list(side), config) for side in zip(*pairs, strict=True))
    found = (left == right).any(axis=1).mean()
    expected = 1 - (1 - jaccard**config.band_rows) ** config.num_bands
    # One sigma of 6,000 pairs is at most 0.0065, so 2 % are three; the seeds are fixed.
    assert found == pytest.approx(expected, abs=0.02)


def test_minima_agree_as_often_as_the_jaccard_similarity() -> None:
    rng = random.Random(0)
    config = MinhashConfig(shingle="word", shingle_width=1, num_bands=286, band_rows=1)
    pairs = [pair(rng, 60, 20) for _ in range(200)]
    left, right = (buckets_of(list(side), config) for side in zip(*pairs, strict=True))
    assert (left == right).mean() == pytest.approx(0.6, abs=0.01)  # 57,200 draws: one sigma is 0.002, were they independent


def test_case_punctuation_and_white_space_do_not_count() -> None:
    config = MinhashConfig()
    one, other = buckets_of(["Hello, World! It's  me.", "hello world\nits me"], config)
    assert (one == other).all()


def test_equal_minima_in_different_bands_are_different_buckets() -> None:
    buckets = buckets_of(["aaaaa"], MinhashConfig(num_bands=4, band_rows=1))
    assert len(set(buckets[0].tolist())) == 4


def test_texts_with_nothing_left_share_no_bucket(tmp_path: Path) -> None:
    texts = ["", "!!!", " \n ", "real text of some length"]
    result = run_program(minhash, MinhashConfig(), tmp_path / "out", normalized=normalized(tmp_path / "in", texts))
    rows = {row["id"]: row["buckets"] for row in read_table(result, shard_names(result)[0]).to_pylist()}
    assert [len(rows[id_of(text)]) for text in texts] == [0, 0, 0, 26]
    assert (result.stats["documents"], result.stats["without_signature"]) == (4, 3)


def test_the_program_writes_what_the_definition_says(tmp_path: Path) -> None:
    config = MinhashConfig(num_bands=3, band_rows=2, shingle_width=4, max_chars=50)
    texts = ["The quick brown fox. " * 9, "Ünï-cödé ТЕКСТ 漢字", "ab"]
    result = run_program(minhash, config, tmp_path / "out", normalized=normalized(tmp_path / "in", texts))
    rows = {row["id"]: row["buckets"] for row in read_table(result, shard_names(result)[0]).to_pylist()}
    assert rows == {id_of(text): definition.buckets(text, definition.char_units, 4, 50, 42, 3, 2) for text in texts}


def test_bytes_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    source = normalized(tmp_path / "in", [f"text number {n} " * (n % 7) for n in range(50)], shards=3)
    runs = [run_program(minhash, MinhashConfig(batch_rows=n), tmp_path / str(n), normalized=source) for n in (1, 7, 4096)]
    assert len({run.digest for run in runs}) == 1
    assert shard_names(runs[0]) == shard_names(source)


def test_an_empty_shard_keeps_its_place(tmp_path: Path) -> None:
    source = normalized(tmp_path / "in", [], shards=1)
    result = run_program(minhash, MinhashConfig(), tmp_path / "out", normalized=source)
    assert read_table(result, shard_names(source)[0]).num_rows == 0


def test_lists_are_empty_where_there_is_no_signature() -> None:
    column = list_column(np.array([[1, 2], [3, 4], [5, 6]], np.uint64), np.array([True, False, True]))
    assert column.to_pylist() == [[1, 2], [], [5, 6]]
