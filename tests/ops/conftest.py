from pathlib import Path

import pytest
from tokenizers import Tokenizer

from infra.artifacts.artifact import Artifact
from ops.config import TokenizerConfig
from ops.tokenizer import load_tokenizer, train_tokenizer
from tests.builders import run_program
from tests.ops.normalized import normalized

CORPUS = [
    *(f"The tide number {n} comes in at {n % 24}:00 and goes out again, slowly; the harbour waits.\n" for n in range(60)),
    *(f"def tide_{n}(depth):\n    return depth + {n}\n" for n in range(60)),
    *(f"Das Meer ist heute {n} Grad warm, sagte die Fischerin über die Straße.\n" for n in range(40)),
    *(f"海は{n}度です。港は静かです。\n" for n in range(40)),
]


@pytest.fixture(scope="session")
def tokenizer_artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    root: Path = tmp_path_factory.mktemp("tokenizer")
    source = normalized(root / "source", CORPUS, shards=2)
    config = TokenizerConfig(vocab_size=600, sample_bytes=1 << 20, max_source_share=1.0)
    return run_program(train_tokenizer, config, root / "tokenizer", normalized={"prose": source})


@pytest.fixture(scope="session")
def tokenizer(tokenizer_artifact: Artifact) -> Tokenizer:
    return load_tokenizer(tokenizer_artifact)
