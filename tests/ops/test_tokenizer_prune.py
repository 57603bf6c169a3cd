"""Nested vocabularies: each encodes every text, and the smaller is where the larger would have stopped."""

import json
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tokenizers import Tokenizer

from infra.artifacts.artifact import Artifact
from ops.config import PruneTokenizerConfig
from ops.tokenizer import END_OF_TEXT_ID, SPECIALS, load_token_bytes, load_tokenizer
from ops.tokenizer_prune import TokenizerPruneError, prune_tokenizer, pruned
from tests.builders import run_program
from tests.ops.conftest import CORPUS
from tests.ops.test_tokenizer import MIXED_TEXT

SIZES = (258, 259, 300, 400)  # of 440 that the source has


@pytest.fixture(scope="module")
def source(tokenizer_artifact: Artifact) -> dict[str, Any]:
    with tokenizer_artifact.open("tokenizer.json") as stream:
        return json.loads(stream.read())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def ladder(source: dict[str, Any]) -> list[Tokenizer]:
    """From the smallest to the source."""
    return [Tokenizer.from_str(json.dumps(pruned(source, size).content)) for size in SIZES] + [Tokenizer.from_str(json.dumps(source))]


def boundaries(tokenizer: Tokenizer, text: str) -> set[int]:
    """Byte offsets at which a token ends."""
    tokenizer.encode_special_tokens = True
    return set(accumulate(len(token) for token in tokenizer.encode(text, add_special_tokens=False).tokens))


@settings(deadline=None, max_examples=150)
@given(text=MIXED_TEXT)
def test_every_size_gives_back_every_byte_of_any_text(ladder: list[Tokenizer], text: str) -> None:
    for tokenizer in ladder:
        tokenizer.encode_special_tokens = True
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        assert all(0 <= one < tokenizer.get_vocab_size() for one in ids)


@settings(deadline=None, max_examples=100)
@given(text=MIXED_TEXT)
def test_a_boundary_of_a_larger_vocabulary_is_one_of_every_smaller(ladder: list[Tokenizer], text: str) -> None:
    for smaller, larger in pairwise(ladder):
        assert boundaries(larger, text) <= boundaries(smaller, text)


def test_vocabularies_are_nested_with_equal_ids(ladder: list[Tokenizer]) -> None:
    for tokenizer, size in zip(ladder, SIZES, strict=False):
        assert tokenizer.get_vocab_size() == size
        assert tokenizer.get_vocab().items() <= ladder[-1].get_vocab().items()
        assert sorted(tokenizer.get_vocab().values()) == list(range(size))


def test_every_merge_makes_a_token_of_tokens(source: dict[str, Any]) -> None:
    model = pruned(source, 400).content["model"]
    assert len(model["merges"]) == 400 - 258
    assert all({left, right, left + right} <= model["vocab"].keys() for left, right in model["merges"])


def test_a_smaller_vocabulary_needs_more_tokens(ladder: list[Tokenizer]) -> None:
    counts = [sum(len(tokenizer.encode(text).ids) for text in CORPUS) for tokenizer in ladder]
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == len(counts)


def test_the_program_takes_the_place_of_a_trained_tokenizer(tmp_path: Path, tokenizer_artifact: Artifact) -> None:
    artifact = run_program(prune_tokenizer, PruneTokenizerConfig(vocab_size=400), tmp_path, tokenizer=tokenizer_artifact)
    tokenizer, sizes = load_tokenizer(artifact), load_token_bytes(artifact)
    assert (artifact.stats["vocab_size"], artifact.stats["merges"], artifact.stats["unreachable"]) == (400, 142, 0)
    assert [tokenizer.token_to_id(name) for name in SPECIALS] == [END_OF_TEXT_ID, 1]
    for text in CORPUS:
        assert sizes[tokenizer.encode(text, add_special_tokens=False).ids].sum() == len(text.encode())
    assert sizes.tolist() == load_token_bytes(tokenizer_artifact)[:400].tolist()


def test_a_size_that_leaves_no_room_for_the_bytes_is_refused(source: dict[str, Any]) -> None:
    with pytest.raises(TokenizerPruneError, match="2 added tokens and 256 base symbols don't fit into 257; ask for 258 or more"):
        pruned(source, 257)


def test_a_tokenizer_without_merges_is_refused() -> None:
    with pytest.raises(TokenizerPruneError, match="type Unigram has no merges"):
        pruned({"model": {"type": "Unigram"}}, 300)


def test_tokens_that_no_merge_makes_are_left_out_and_counted() -> None:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "stray": 3, "abab": 4}, "merges": ["a b", "ab ab"]}
    found = pruned({"model": model, "added_tokens": [{"id": 5, "content": "<end>"}]}, 100)
    assert (found.content["model"]["vocab"], found.unreachable) == ({"a": 0, "b": 1, "ab": 2, "abab": 3}, 1)
    assert found.content["added_tokens"] == [{"id": 4, "content": "<end>"}]


def test_a_merge_that_lost_a_part_goes_with_it() -> None:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "ca": 5}, "merges": [["a", "b"], ["ab", "c"], ["c", "a"]]}
    found = pruned({"model": model, "added_tokens": []}, 4)
    assert found.content["model"]["merges"] == [["a", "b"]]
