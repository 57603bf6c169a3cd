"""A published tokenizer, pruned: what is left encodes the text of every corpus and every evaluation script."""

import gzip
import json
from itertools import accumulate, pairwise

import pytest
from tokenizers import Tokenizer

from ops.tokenizer_prune import pruned
from tests.real.corpora import rows_of
from tests.real.real_data import REAL_DATA, needs_real_data

pytestmark = needs_real_data

SIZES = (4_096, 16_384, 32_768)


@pytest.fixture(scope="module")
def ladder() -> list[Tokenizer]:
    """GPT-NeoX's tokenizer (50,280 tokens, in OLMo's form) and what is left of it, from the smallest."""
    [path] = (REAL_DATA / "models" / "tokenizers").iterdir()
    content = path.read_bytes()
    source = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    source["post_processor"] = None  # names its end token by id
    source["normalizer"] = None  # NFC would not give back every byte
    return [Tokenizer.from_str(json.dumps(pruned(source, size).content)) for size in SIZES] + [Tokenizer.from_str(json.dumps(source))]


@pytest.mark.parametrize("corpus", ["code", "udhr", "chinese_poetry", "stacks_project", "eltec_srp", "tldr"])
def test_every_size_gives_back_real_text_and_splits_where_the_larger_does(ladder: list[Tokenizer], corpus: str) -> None:
    texts = [row["text"][:2_000] for row in rows_of(corpus)[:40]]
    ends = []
    for tokenizer in ladder:
        encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
        assert [tokenizer.decode(one.ids, skip_special_tokens=False) for one in encodings] == texts
        assert max(max(one.ids, default=0) for one in encodings) < tokenizer.get_vocab_size()
        ends.append([set(accumulate(len(token) for token in one.tokens)) for one in encodings])
    for smaller, larger in pairwise(ends):
        assert all(big <= small for small, big in zip(smaller, larger, strict=True))


def test_sizes_are_as_asked(ladder: list[Tokenizer]) -> None:
    assert [tokenizer.get_vocab_size() for tokenizer in ladder[:-1]] == list(SIZES)
