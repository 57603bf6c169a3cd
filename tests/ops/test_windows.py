import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.config import TokenizeConfig
from ops.encoder import LibraryEncoder
from ops.tokenizer import PIECES, untrained
from ops.windows import is_safe_cut, windows

ALPHABETS = "ab XYZ \n\t'.,-_0129é́ßжя中文。！？🙂👩‍👧\u00a0\u2028\r\n ـكﷺनमस्ते"
TEXTS = st.text(st.sampled_from(sorted(set(ALPHABETS))), max_size=200) | st.text(max_size=200)


def pieces(text: str) -> list[str]:
    return [text[start:end] for _, (start, end) in untrained().pre_tokenizer.pre_tokenize_str(text)]


@settings(deadline=None, max_examples=300)
@given(TEXTS, st.integers(16, 40))
def test_windows_joined_are_the_text_and_none_is_too_long(text: str, max_chars: int) -> None:
    parts = [window for window, _ in windows(text, max_chars)]
    assert "".join(parts) == text
    assert all(len(part) <= max_chars for part in parts)


@settings(deadline=None, max_examples=500)
@given(TEXTS)
def test_a_safe_cut_never_changes_the_pieces(text: str) -> None:
    for position in range(1, len(text)):
        if is_safe_cut(text, position):
            assert pieces(text[:position]) + pieces(text[position:]) == pieces(text), (text, position)


def test_ordinary_prose_is_cut_only_where_it_is_safe() -> None:
    text = "A river runs, and it runs on. «Да», сказал он.\n\n他说：好。\n" * 500
    assert all(safe for _, safe in windows(text, 64))


def test_a_run_without_any_boundary_is_cut_where_the_window_is_full() -> None:
    parts = list(windows("x" * 100, 32))
    assert [len(window) for window, _ in parts] == [32, 32, 32, 4]
    assert [safe for _, safe in parts] == [False, False, False, True]


def test_the_work_on_a_text_without_boundaries_is_linear_not_quadratic() -> None:
    looked_at = 0

    class Counting(str):
        def __getitem__(self, key: object) -> str:  # type: ignore[override]
            nonlocal looked_at
            looked_at += isinstance(key, int)
            return str.__getitem__(self, key)  # type: ignore[index]

    list(windows(Counting("x" * 100_000), 1000))
    assert looked_at <= 2 * 100_000


@pytest.mark.parametrize("window_chars", [16, 100, 100_000])
def test_encoding_in_windows_equals_encoding_the_whole(window_chars: int, tokenizer) -> None:  # type: ignore[no-untyped-def]
    text = "def tide(depth: int) -> str:\n    return 'ebb' if depth < 3 else \"flow\"\n\n\n" * 60 + "Straße, naïve café; 東京、大阪。 " * 60
    ids, _, unsafe = LibraryEncoder(tokenizer.to_str(), TokenizeConfig(window_chars=window_chars, batch_chars=500)).encode(pa.array([text]))
    assert unsafe == 0
    assert np.array_equal(ids, tokenizer.encode(text, add_special_tokens=False).ids)


def test_the_pattern_leaves_no_character_out() -> None:
    text = "".join(map(chr, [*range(0, 0xD800), *range(0xE000, 0x11000)]))
    assert "".join(pieces(text)) == text
    assert r"\s+" in PIECES
