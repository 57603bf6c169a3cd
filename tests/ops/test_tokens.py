from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from infra.artifacts.artifact import Artifact
from ops.config import TokenizeConfig
from ops.dataflow.errors import PoisonedShardsError
from ops.shards import read_table, shard_names
from ops.tokenizer import load_token_bytes
from ops.tokens import tokenize
from tests.builders import publish, run_program
from tests.ops.conftest import CORPUS
from tests.ops.normalized import normalized


def test_tokens_lie_beside_the_documents_row_by_row_and_decode_to_them(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_artifact: Artifact
) -> None:
    source = normalized(tmp_path / "source", [*CORPUS, "long " * 200], shards=3)
    tokens = run_program(tokenize, TokenizeConfig(window_chars=100), tmp_path / "tokens", normalized=source, tokenizer=tokenizer_artifact)
    assert shard_names(tokens) == shard_names(source)
    for name in shard_names(source):
        documents, encoded = read_table(source, name), read_table(tokens, name)
        assert encoded["id"].equals(documents["id"])
        assert [tokenizer.decode(ids, skip_special_tokens=False) for ids in encoded["input_ids"].to_pylist()] == documents[
            "text"
        ].to_pylist()
        assert encoded["bytes"].to_pylist() == [len(text.encode()) for text in documents["text"].to_pylist()]
    assert tokens.stats["documents"] == len(CORPUS) + 1
    assert tokens.stats["long_documents"] == 1
    assert np.array_equal(load_token_bytes(tokens), load_token_bytes(tokenizer_artifact))


def test_the_size_of_encoding_batches_changes_no_byte(tmp_path: Path, tokenizer_artifact: Artifact) -> None:
    source = normalized(tmp_path / "source", CORPUS)
    digests = {
        run_program(
            tokenize, TokenizeConfig(batch_chars=chars), tmp_path / str(chars), normalized=source, tokenizer=tokenizer_artifact
        ).digest
        for chars in (1, 1000, 1 << 22)
    }
    assert len(digests) == 1


def test_an_empty_shard_keeps_its_place(tmp_path: Path, tokenizer_artifact: Artifact) -> None:
    source = normalized(tmp_path / "source", CORPUS[:1], shards=2)
    tokens = run_program(tokenize, TokenizeConfig(), tmp_path / "tokens", normalized=source, tokenizer=tokenizer_artifact)
    assert [read_table(tokens, name).num_rows for name in shard_names(tokens)] == [1, 0]


def test_a_tokenizer_that_loses_bytes_is_refused_by_name_of_the_document(tmp_path: Path, tokenizer_artifact: Artifact) -> None:
    from infra.artifacts.writer import Writer

    out = Writer(str(tmp_path / "bad/attempt"), scratch_url=str(tmp_path))
    with out.open("tokenizer.json") as stream:
        stream.write(
            tokenizer_artifact.open("tokenizer.json").read().replace(b'"normalizer": null', b'"normalizer": {"type": "Lowercase"}')
        )
    with out.open("token_bytes.npy") as stream:
        stream.write(tokenizer_artifact.open("token_bytes.npy").read())
    bad = publish(tmp_path / "bad", out, {})
    source = normalized(tmp_path / "source", ["İstanbul"])  # its lower-case form has one byte more
    with pytest.raises(PoisonedShardsError, match=r"row 0 .*LossyTokenizerError.* has 9 bytes, but its tokens spell 10"):
        run_program(tokenize, TokenizeConfig(), tmp_path / "tokens", normalized=source, tokenizer=bad)
