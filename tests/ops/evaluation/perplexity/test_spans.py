"""Every byte belongs to a token, and byte losses sum to token losses, whatever the text and the vocabulary."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from infra.archive.records import escape
from ops.evaluation.perplexity.spans import ALPHABET, byte_nats, encode_with_ends
from ops.tokenizer import SPECIALS, untrained

SAMPLE = ["the quick brown fox, 12 eggs. ", "def f(x):\n    return x\n", "Ümlaut 東京 🦆 "]
ODD = "a\u2028b\u2029c\u0085d\u000be\u000cf 🦆🏳️‍🌈 \ud800 g\r\n"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def byte_level(vocabulary: int) -> Tokenizer:
    tokenizer = untrained()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(SAMPLE * 5, trainer=trainer)
    return tokenizer


def trimming() -> Tokenizer:
    """One that drops space, folds case and takes ligatures apart: its tokens don't spell the text."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        SAMPLE * 5, trainer=trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    )
    return tokenizer


TOKENIZERS = {"bytes": byte_level(258), "pairs": byte_level(330), "trimming": trimming()}


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=TEXTS)
@settings(deadline=None, max_examples=150)
def test_bytes_are_parted_exactly_and_losses_sum(name: str, text: str) -> None:
    ids, ends = encode_with_ends(TOKENIZERS[name], text)
    if not ids:
        return  # a text of space alone, to a vocabulary that knows no space
    assert np.all(np.diff(ends) >= 0)
    assert ends[-1] == len(text.encode())
    nats = np.random.default_rng(len(text)).gamma(2.0, size=len(ids))
    spread = byte_nats(nats, ends)
    assert len(spread) == len(text.encode())
    assert spread.sum() == pytest.approx(nats.sum(), abs=1e-6)


@pytest.mark.parametrize("name", ["bytes", "pairs"])
def test_odd_text_is_parted_where_its_tokens_are(name: str) -> None:
    text = escape(ODD)
    ids, ends = encode_with_ends(TOKENIZERS[name], text)
    data = text.encode()
    pieces = [data[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    assert b"".join(pieces) == data
    assert [TOKENIZERS[name].decode([token]).encode() for token, piece in zip(ids, pieces, strict=True) if piece.isascii()] == [
        piece for piece in pieces if piece.isascii()
    ]


@given(text=TEXTS)
@settings(deadline=None, max_examples=150)
def test_a_model_that_prices_bytes_costs_the_same_in_every_vocabulary(text: str) -> None:
    price = np.random.default_rng(1).gamma(2.0, size=len(text.encode()))
    total = []
    for tokenizer in (TOKENIZERS["bytes"], TOKENIZERS["pairs"]):
        _, ends = encode_with_ends(tokenizer, text)
        nats = np.add.reduceat(price, np.concatenate([[0], ends[:-1]]))
        total.append(byte_nats(nats, ends).sum())
    assert total[0] == pytest.approx(total[1], abs=1e-9)


def test_the_alphabet_is_that_of_the_library() -> None:
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert set(ALPHABET) == set(pre_tokenizers.ByteLevel.alphabet())
    for character in ("\n", " ", "é", "東", "🦆", "\u2028", "\u00ad"):
        token = spelled.pre_tokenize_str(character)[0][0]
        assert bytes(ALPHABET[part] for part in token) == character.encode()


def test_a_token_without_bytes_gives_its_loss_to_the_next_one() -> None:
    assert byte_nats(np.array([1.0, 2.0, 4.0, 8.0]), np.array([0, 2, 2, 4])).tolist() == [1.5, 1.5, 6.0, 6.0]
    assert byte_nats(np.array([1.0, 2.0]), np.array([2, 2])).tolist() == [1.5, 1.5]
