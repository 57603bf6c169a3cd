"""A worker's engine from what is published: `python -m infra.serving.worker URL --engine model.serving.load:released ...`."""

import json
import tempfile
from pathlib import Path

from tokenizers import Tokenizer

from infra.artifacts.artifact import Artifact
from model.cache import cache_bytes
from model.export import CONFIG, WEIGHTS
from model.finish import read_model
from model.load import Release, load_release
from model.run import read_run
from model.serving.engine import ModelEngine
from ops.tokenizer import END_OF_TEXT_ID, load_tokenizer

TOKENIZER = "tokenizer.json"


def released(folder: str, slots: str) -> ModelEngine:
    """A release in a folder of this machine: `model.safetensors`, `config.json`, `tokenizer.json`.

    Raises:
        FileNotFoundError: one of the three is missing.
        ValueError: it is another architecture's.
    """
    where = Path(folder)
    tokenizer = Tokenizer.from_file(str(_present(where / TOKENIZER)))
    tokenizer.encode_special_tokens = True  # `<|endoftext|>` in a prompt is text
    _present(where / WEIGHTS)
    config = json.loads(_present(where / CONFIG).read_text())
    release = load_release(where)
    return _engine(release, tokenizer, config["max_position_embeddings"], config["eos_token_id"], slots)


def release_artifact(url: str, slots: str) -> ModelEngine:
    """A release where it was published, whatever the storage."""
    artifact = Artifact.open_at(url)
    with tempfile.TemporaryDirectory(prefix="seaway-release-") as folder:
        for name in (WEIGHTS, CONFIG, TOKENIZER):
            (Path(folder) / name).symlink_to(artifact.local_path(name).absolute())
        return released(folder, slots)


def checkpoint_artifact(url: str, tokenizer_url: str, slots: str) -> ModelEngine:
    """A finished run, with the tokenizer that its data was made with."""
    checkpoint = Artifact.open_at(url)
    run = read_run(checkpoint).run
    params, router_bias = read_model(checkpoint, run)
    tokenizer = load_tokenizer(Artifact.open_at(tokenizer_url))
    return _engine(Release(params, router_bias, run.model), tokenizer, run.loader.sequence_tokens, END_OF_TEXT_ID, slots)


def _engine(release: Release, tokenizer: Tokenizer, context_tokens: int, end_id: int, slots: str) -> ModelEngine:
    count = int(slots)
    memory = cache_bytes(release.config, count, context_tokens)
    print(f"{count} slots of {context_tokens} tokens: {memory / 2**20:.1f} MiB of keys and values", flush=True)
    return ModelEngine(release, tokenizer, context_tokens=context_tokens, end_id=end_id, slots=count)


def _present(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(f"{path.parent} has no {path.name}: it is no release; give a folder with {WEIGHTS}, {CONFIG}, {TOKENIZER}")
    return path
