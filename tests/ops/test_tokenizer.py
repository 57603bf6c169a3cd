import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from infra.artifacts.artifact import Artifact
from ops.config import TokenizerConfig
from ops.tokenizer import END_OF_TEXT, load_token_bytes, train_tokenizer
from tests.builders import run_program
from tests.ops.conftest import CORPUS
from tests.ops.normalized import normalized

MIXED_TEXT = st.text(max_size=80) | st.text(st.sampled_from("aé日🙂👨‍👩‍👧‍👦 \t\n\r\u200d\ufeff\u00a0नि١٢ﬁ"), max_size=80)

RETRAIN = """
import sys, random
from pathlib import Path
from ops.config import TokenizerConfig
from ops.tokenizer import train_tokenizer
from tests.builders import run_program
from tests.ops.conftest import CORPUS
from tests.ops.normalized import normalized
root = Path(sys.argv[1])
texts = list(CORPUS)
random.Random(int(sys.argv[2])).shuffle(texts)
source = normalized(root / "source", texts, shards=int(sys.argv[2]))
config = TokenizerConfig(vocab_size=600, sample_bytes=1 << 20, max_source_share=1.0)
print(run_program(train_tokenizer, config, root / "out", normalized={"prose": source}).digest)
"""


def retrain(directory: Path, threads: int, order: int) -> str:
    environment = os.environ | {"RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true", "PYTHONHASHSEED": str(order)}
    done = subprocess.run(
        [sys.executable, "-c", RETRAIN, str(directory), str(order)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_bytes_depend_on_neither_threads_nor_the_order_and_sharding_of_documents(tmp_path: Path, tokenizer_artifact: Artifact) -> None:
    assert retrain(tmp_path / "one", threads=1, order=1) == tokenizer_artifact.digest
    assert retrain(tmp_path / "two", threads=2, order=3) == tokenizer_artifact.digest


@settings(deadline=None, max_examples=300, suppress_health_check=[])
@given(text=MIXED_TEXT)
def test_decoding_gives_back_every_byte_of_any_text(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids, skip_special_tokens=False) == text


@settings(deadline=None, max_examples=100)
@given(text=MIXED_TEXT)
def test_token_bytes_add_up_to_the_texts_bytes(tokenizer: Tokenizer, tokenizer_artifact: Artifact, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert load_token_bytes(tokenizer_artifact)[ids].sum() == len(text.encode())


def test_specials_have_the_first_ids_and_no_bytes(tokenizer: Tokenizer, tokenizer_artifact: Artifact) -> None:
    assert [tokenizer.token_to_id(name) for name in (END_OF_TEXT, "<|pad|>")] == [0, 1]
    assert load_token_bytes(tokenizer_artifact)[:2].tolist() == [0, 0]
    assert load_token_bytes(tokenizer_artifact).dtype == np.int32


def test_a_document_that_spells_the_end_of_text_cannot_forge_it(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(f"before {END_OF_TEXT} after", add_special_tokens=False).ids
    assert 0 not in ids
    assert tokenizer.decode(ids) == f"before {END_OF_TEXT} after"


def test_held_out_documents_teach_the_tokenizer_nothing(tmp_path: Path) -> None:
    secret = ["zyzzogeton " * 50]
    config = TokenizerConfig(vocab_size=400, sample_bytes=1 << 20, max_source_share=1.0)
    hidden = normalized(tmp_path / "hidden", CORPUS + secret, held_out=secret)
    without = normalized(tmp_path / "without", CORPUS)
    with_it, without_it = (
        run_program(train_tokenizer, config, tmp_path / name, normalized={"a": source}) for name, source in (("x", hidden), ("y", without))
    )
    assert with_it.digest == without_it.digest
    shown = run_program(train_tokenizer, config, tmp_path / "z", normalized={"a": normalized(tmp_path / "shown", CORPUS + secret)})
    assert shown.digest != without_it.digest


def test_no_source_takes_more_than_its_share_of_the_sample(tmp_path: Path) -> None:
    big = normalized(tmp_path / "big", [f"page {n} of a very large crawl\n" * 3 for n in range(400)])
    small = normalized(tmp_path / "small", CORPUS[:50])
    config = TokenizerConfig(vocab_size=300, sample_bytes=8_000, max_source_share=0.5)
    stats = run_program(train_tokenizer, config, tmp_path / "out", normalized={"big": big, "small": small}).stats
    assert 3_500 < stats["source_sample_bytes"]["big"] <= 4_000
    assert 3_000 < stats["source_sample_bytes"]["small"] <= 4_000


def test_stats_say_how_well_the_sample_compresses(tokenizer_artifact: Artifact, tokenizer: Tokenizer) -> None:
    tokens = sum(len(tokenizer.encode(text).ids) for text in CORPUS)
    size = sum(len(text.encode()) for text in CORPUS)
    assert tokenizer_artifact.stats["sample_tokens"] == tokens
    assert tokenizer_artifact.stats["bytes_per_token"] == pytest.approx(size / tokens)
    assert tokenizer_artifact.stats["vocab_size"] == len(json.load(tokenizer_artifact.open("tokenizer.json"))["model"]["vocab"])


def test_a_corpus_without_train_documents_is_refused_with_what_to_do(tmp_path: Path) -> None:
    source = normalized(tmp_path / "source", CORPUS[:3], held_out=CORPUS[:3])
    with pytest.raises(ValueError, match="raise sample_bytes"):
        run_program(train_tokenizer, TokenizerConfig(), tmp_path / "out", normalized={"a": source})


def test_a_literal_special_in_the_text_does_not_disturb_training(tmp_path: Path) -> None:
    texts = [text + END_OF_TEXT * random.Random(1).randint(1, 3) for text in CORPUS]
    source = normalized(tmp_path / "source", texts)
    config = TokenizerConfig(vocab_size=500, sample_bytes=1 << 20, max_source_share=1.0)
    artifact = run_program(train_tokenizer, config, tmp_path / "out", normalized={"a": source})
    assert load_token_bytes(artifact)[0] == 0
    assert (load_token_bytes(artifact)[2:] > 0).all()
