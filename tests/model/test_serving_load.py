"""Engines from what is published: a release wherever it lies, and a checkpoint with its tokenizer, say what the folder says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.config import identity_of
from infra.artifacts.manifest import MANIFEST_NAME, Manifest, digest_of
from infra.artifacts.writer import Writer
from infra.storage.objects import remove_tree, replace
from model.arrays import encode
from model.config import LoaderConfig
from model.export import CONFIG, WEIGHTS
from model.finish import MODEL
from model.run import CONFIG as RUN_CONFIG
from model.run import FLOPS_CONVENTIONS, STATE, RunState, resolve
from model.serving.engine import ModelEngine
from model.serving.load import TOKENIZER, checkpoint_artifact, release_artifact, released
from model.state import to_arrays
from tests.model.cells import DATA, tiny_config
from tests.model.speaker import CONTEXT_TOKENS, SPEAKER, bias, weights, write_speaker

SLOTS = "3"  # as the engine's tests have, whose programs are compiled already
ASKED = {"prompt": "the tide", "temperature": 0.0, "top_p": 1.0, "seed": 0, "max_tokens": 8, "stop": (), "listed": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_speaker(tmp_path_factory.mktemp("load") / "speaker")


@pytest.fixture(scope="module")
def expected(folder: Path) -> str:
    return said(released(str(folder), SLOTS))


@pytest.fixture
def memory() -> Iterator[str]:
    url = f"memory://{uuid4().hex}"
    yield url
    remove_tree(url)


def said(engine: ModelEngine) -> str:
    try:
        return engine.generate(ASKED, lambda pieces: None).text
    finally:
        engine.close()


def published(url: str, files: dict[str, Any]) -> Artifact:
    """An artifact of files, given as bytes or as JSON values."""
    out = Writer(f"{url}/attempt-0", scratch_url=f"{url}/.scratch")
    for name, content in files.items():
        if isinstance(content, bytes):
            with out.open(name) as stream:
                stream.write(content)
        else:
            out.write_json(name, content)
    manifest = Manifest(recipe="0" * 16, payload={}, digest=digest_of(out.files), directory="attempt-0", files=out.files, stats={})
    replace(f"{url}/{MANIFEST_NAME}", manifest.model_dump_json().encode())
    return Artifact(url, manifest)


def test_a_release_in_an_object_store_says_what_its_folder_says(
    folder: Path, memory: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAWAY_CACHE", str(tmp_path))
    artifact = published(memory, {name: (folder / name).read_bytes() for name in (WEIGHTS, CONFIG, TOKENIZER)})
    assert said(release_artifact(artifact.url, SLOTS)) == expected


def test_a_release_on_a_disk_is_read_where_it_lies(folder: Path, expected: str, tmp_path: Path) -> None:
    artifact = published(str(tmp_path / "release"), {name: (folder / name).read_bytes() for name in (WEIGHTS, CONFIG, TOKENIZER)})
    assert said(release_artifact(artifact.url, SLOTS)) == expected


def test_a_checkpoint_with_its_tokenizer_says_what_its_release_says(folder: Path, expected: str, tmp_path: Path) -> None:
    run = resolve(tiny_config(model=SPEAKER, loader=LoaderConfig(batch_sequences=1, sequence_tokens=CONTEXT_TOKENS)))
    state = RunState(step=1, tokens=1, flops=1.0, flops_conventions=FLOPS_CONVENTIONS, data=DATA)
    arrays = to_arrays({"parameters": weights(SPEAKER), "router_bias": bias(SPEAKER)})
    files = {RUN_CONFIG: identity_of(run), STATE: state.model_dump(mode="json"), MODEL: encode(arrays)}
    checkpoint = published(str(tmp_path / "hero"), files)
    tokenizer = published(str(tmp_path / "tokenizer"), {TOKENIZER: (folder / TOKENIZER).read_bytes()})
    assert said(checkpoint_artifact(checkpoint.url, tokenizer.url, SLOTS)) == expected
