"""The kernel's token ids against the tokenizers library's, and the fall-back to it."""

import json
import random
from itertools import pairwise

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, normalizers, pre_tokenizers, trainers

from ops import encoder as encoder_module
from ops.config import TokenizeConfig
from ops.encoder import Encoded, KernelEncoder, LibraryEncoder, UnknownTokenizerError, encoder_of
from ops.tokenizer import SPECIALS, untrained
from tests.ops.conftest import CORPUS

SCRIPTS = (
    "aAzZéñßıſ ÅøαΩжЯאבعمकिक्षทดสอบ漢字かなカナ한글𝔸𝟘१२٣½²Ⅷ_-'’.,!?;:()[]{}<>|/\\\"#$%&*+=~^`@ "
    + "\t\n\r\f\v\x1c\x1f\x85\xa0\u2003\u2028\u3000\ufeff😀👩‍👩"
)


CHARACTERS = [chr(code) for code in (*range(1, 0xD800), *range(0xE000, 0x11000))]


@pytest.fixture(scope="module")
def tokenizer_json() -> str:
    tokenizer = untrained()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=2_000, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([*CORPUS, SCRIPTS * 3, "aaaa aaaaaa  \n\n  the theatre 12345"], trainer=trainer)
    return str(tokenizer.to_str())


def texts() -> list[str]:
    rng = random.Random(5)
    fixed = [
        "",
        " ",
        "\n",
        " \n a",
        "<|endoftext|> and <|pad|>",
        "a" * 5_000,
        "漢" * 3_000,
        " " * 700,
        "\r\n" * 60 + " x",
        "ab" * 200,
        *CORPUS,
    ]
    made = ["".join(rng.choices(SCRIPTS, k=rng.randint(1, 120))) for _ in range(1_500)]
    spread = ["".join(rng.choices(CHARACTERS, k=80)) for _ in range(60)]
    return fixed + made + spread


def rows_of(encoded: Encoded) -> list[list[int]]:
    return [encoded.ids[start:end].tolist() for start, end in pairwise(encoded.ends)]


def test_the_kernel_gives_the_librarys_ids_in_every_script(tokenizer_json: str) -> None:
    given = texts()
    library = Tokenizer.from_str(tokenizer_json)
    library.encode_special_tokens = True
    kernel = KernelEncoder(tokenizer_json)
    for _ in range(2):  # with an empty and with a full cache
        found = rows_of(kernel.encode(pa.array(given)))
        for text, ids in zip(given, found, strict=True):
            assert ids == library.encode(text, add_special_tokens=False).ids, text


def test_a_cache_in_which_pieces_push_each_other_out_changes_no_id(tokenizer_json: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = pa.array(texts())
    expected = rows_of(KernelEncoder(tokenizer_json).encode(given))
    monkeypatch.setattr(encoder_module, "CACHE_SLOTS", 2)
    assert rows_of(KernelEncoder(tokenizer_json).encode(given)) == expected


def test_an_encoder_that_forgot_its_pieces_is_as_a_new_one(tokenizer_json: str) -> None:
    given, kernel = pa.array(texts()), KernelEncoder(tokenizer_json)
    first = rows_of(kernel.encode(given))
    kernel.forget()
    assert not kernel._cache.any()
    assert rows_of(kernel.encode(given)) == first


def test_a_slice_of_a_column_is_encoded_as_those_rows(tokenizer_json: str) -> None:
    given = texts()[-20:]
    whole, part = pa.array(given), pa.array(given)[5:9]
    assert rows_of(KernelEncoder(tokenizer_json).encode(part)) == rows_of(KernelEncoder(tokenizer_json).encode(whole))[5:9]


def test_a_tokenizer_that_the_kernel_does_not_know_is_the_librarys(tokenizer_json: str) -> None:
    lowering = Tokenizer.from_str(tokenizer_json)
    lowering.normalizer = normalizers.Lowercase()
    other_pattern = Tokenizer.from_str(tokenizer_json)
    other_pattern.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for tokenizer in (lowering, other_pattern):
        with pytest.raises(UnknownTokenizerError):
            KernelEncoder(tokenizer.to_str())
        found = encoder_of(tokenizer.to_str(), TokenizeConfig())
        assert isinstance(found, LibraryEncoder)
        assert rows_of(found.encode(pa.array(["Ab c", ""]))) == [tokenizer.encode("Ab c").ids, []]
    assert isinstance(encoder_of(tokenizer_json, TokenizeConfig()), KernelEncoder)


def test_ignored_merges_are_noticed(tokenizer_json: str) -> None:
    described = json.loads(tokenizer_json)
    described["model"]["ignore_merges"] = True
    with pytest.raises(UnknownTokenizerError, match=r"model\.ignore_merges is True"):
        KernelEncoder(json.dumps(described))


def test_windows_of_the_library_change_nothing_where_they_end_at_safe_places_and_are_counted_where_not(tokenizer_json: str) -> None:
    given = pa.array([*CORPUS, "long words " * 40])
    whole, cut = (LibraryEncoder(tokenizer_json, TokenizeConfig(window_chars=chars)) for chars in (32_768, 64))
    assert rows_of(whole.encode(given)) == rows_of(cut.encode(given)) == rows_of(KernelEncoder(tokenizer_json).encode(given))
    unsafe = LibraryEncoder(tokenizer_json, TokenizeConfig(window_chars=16)).encode(pa.array(["é" * 100]))
    assert unsafe.unsafe_cuts == 6
    assert Tokenizer.from_str(tokenizer_json).decode(unsafe.ids.tolist()) == "é" * 100
