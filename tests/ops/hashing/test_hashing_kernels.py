"""The kernels against their plain Python definition."""

import random
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from ops.hashing import definition, kernels
from ops.hashing.code_points import case_folding, case_folding_without_punctuation
from ops.hashing.columns import TextColumn

ALPHABET = "aAbB zZ.,!-\n\t  éÉßİıΣς жЖ漢字𝒳🙂\u00a0\u3000\u2028'0189"


def texts(count: int, seed: int = 7) -> list[str]:
    rng = random.Random(seed)
    fixed = ["", "!!!", " ", "a", "\n\n", "Hello, World", "x" * 40, "ÀÈ", "\U0010ffff", "a\x00b"]
    return fixed + ["".join(rng.choices(ALPHABET, k=rng.randint(0, 120))) for _ in range(count)]


def test_the_mixer_is_splitmix64_as_published() -> None:
    stream = definition.split_mix(1234567)
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert [next(stream) for _ in range(5)] == published


@pytest.mark.parametrize("cap", [1, 2, 9, 500])
def test_folding_agrees_with_python_strings(cap: int) -> None:
    corpus = texts(200)
    column = TextColumn.of(pa.array(corpus))
    out = np.empty(cap, np.uint32)
    for row, text in enumerate(corpus):
        for folding, twin in (
            (case_folding(), definition.folded(text, cap)),
            (case_folding_without_punctuation(), definition.cleaned(text, cap)),
        ):
            count = kernels.fold_text(column.data, column.offsets[row], column.offsets[row + 1], folding, out)
            assert "".join(map(chr, out[:count])) == twin


@pytest.mark.parametrize("cap", [1, 2, 9, 500])
def test_words_folded_in_one_pass_are_those_of_the_definition(cap: int) -> None:
    corpus = texts(200)
    column = TextColumn.of(pa.array(corpus))
    out = np.empty(500, np.uint64)
    for row, text in enumerate(corpus):
        count = kernels.folded_words(column.data, *column.offsets[row : row + 2], case_folding_without_punctuation(), cap, out)
        assert out[:count].tolist() == definition.word_units(definition.cleaned(text, cap))


@pytest.mark.parametrize(("unit", "twin"), [(False, definition.char_units), (True, definition.word_units)])
@pytest.mark.parametrize("width", [1, 3, 5])
def test_windows_roll_to_the_same_hashes_as_the_definition(unit: bool, twin: Callable[[str], list[int]], width: int) -> None:
    corpus = texts(60)
    column = TextColumn.of(pa.array(corpus))
    for row, text in enumerate(corpus):
        hashes, _, _ = kernels.folded_windows(column.data, column.offsets, row, case_folding(), unit, width, 1000)
        assert hashes.tolist() == sorted(definition.windows(twin(definition.folded(text, 1000)), width))


@pytest.mark.parametrize(("by_word", "twin"), [(False, definition.char_units), (True, definition.word_units)])
def test_minhash_buckets_agree_with_the_definition(by_word: bool, twin: Callable[[str], list[int]]) -> None:
    corpus = [*texts(25), "lorem ipsum dolor sit amet " * 60]
    column = TextColumn.of(pa.array(corpus))
    pairs = definition.permutations(42, 12)
    a, b = (np.array(side, np.uint32) for side in zip(*pairs, strict=True))
    out = np.zeros((len(corpus), 4), np.uint64)
    signed = kernels.minhash_rows(column.data, column.offsets, case_folding_without_punctuation(), by_word, 3, 90, a, b, out)
    for row, text in enumerate(corpus):
        expected = definition.buckets(text, twin, 3, 90, 42, 4, 3)
        assert (out[row].tolist() if signed[row] else []) == expected


def test_more_shingles_than_the_seen_table_holds_give_the_same_minima() -> None:
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**64, 3000, np.uint64)[rng.integers(0, 3000, 9000)]
    a, b = rng.integers(0, 2**32, (2, 7), np.uint64).astype(np.uint32)
    minima = np.empty(7, np.uint32)
    kernels.minima_of(hashes, len(hashes), a, b, np.empty(256, np.uint64), np.empty(64, np.uint32), minima)
    upper = (hashes >> np.uint64(32)).astype(np.uint32)
    assert minima.tolist() == [int((x * upper + y).min()) for x, y in zip(a, b, strict=True)]


def test_shared_count_is_a_multiset_intersection() -> None:
    left, right = np.array([1, 1, 2, 5, 9], np.uint64), np.array([1, 2, 2, 5, 5, 10], np.uint64)
    assert kernels.shared_count(left, right) == 3


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_a_text_column_views_slices_without_copying(kind: pa.DataType) -> None:
    column = TextColumn.of(pa.array(["ab", "", "cdé", "f"]).cast(kind).slice(1, 2))
    rows = [bytes(column.data[column.offsets[i] : column.offsets[i + 1]]).decode() for i in range(column.rows)]
    assert rows == ["", "cdé"]
    assert column.longest == 4


def test_an_empty_text_column_has_no_rows() -> None:
    assert TextColumn.of(pa.array([], pa.string())).rows == 0


def test_null_texts_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("1 of 2 texts are null")):
        TextColumn.of(pa.array(["a", None]))


def test_broken_utf8_is_never_read_past_its_row() -> None:
    column = TextColumn.of(pa.array([b"a\xf0\x9f", b"\x80b"]))
    out = np.empty(8, np.uint32)
    count = kernels.fold_text(column.data, column.offsets[0], column.offsets[1], case_folding(), out)
    assert out[:count].tolist() == [ord("a"), 0xFFFD, 0xFFFD]
