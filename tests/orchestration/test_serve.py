"""`seaway serve` as a person runs it: the official client on our own generator, and nothing left when it ends."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import psutil
import pytest
from openai.types.chat import ChatCompletionUserMessageParam
from tokenizers import Tokenizer

import orchestration.definitions  # noqa: F401 - the lineage is filled as it loads
from infra.artifacts.artifact import Artifact
from infra.artifacts.manifest import MANIFEST_NAME, Manifest
from infra.artifacts.store import ArtifactStore
from infra.serving.pool import WorkerCommand
from infra.serving.upstream import MissingEngineError
from model.generate import sample
from model.load import load_release
from model.release import release
from ops.tokenizer import END_OF_TEXT_ID, train_tokenizer
from orchestration.errors import UnknownNodeError
from orchestration.serve import ServeError, command_for, limits_for, newest_in, tokenizer_of
from tests.infra.dispatch.builders import wait_for
from tests.journeys.lab import REPOSITORY
from tests.model.speaker import CONTEXT_TOKENS, write_speaker

SEAWAY = [sys.executable, "-c", "from orchestration.cli import main; main()"]
SLOTS = 3


class Serving:
    """The command, running."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.said: list[str] = []
        env = {
            **os.environ,
            "PYTHONPATH": f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}",
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        command = [*SEAWAY, "serve", str(folder), "--port", "0", "--slots", str(SLOTS), "--name", "speaker"]
        self.process = psutil.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()
        wait_for(lambda: self.process.poll() is not None or "ready:" in "".join(self.said), "the first answer")
        assert self.process.poll() is None, "".join(self.said)
        url = re.search(r"http://\S+/v1", "".join(self.said))
        assert url is not None
        self.client = openai.OpenAI(base_url=url[0], api_key="none", timeout=120, max_retries=0)

    def workers(self) -> list[psutil.Process]:
        return [child for child in self.process.children() if child.status() != psutil.STATUS_ZOMBIE]

    def end(self) -> int:
        family = self.process.children(recursive=True)
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        self._listener.join(60)
        self.process.stdout.close()
        assert not [child for child in family if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        return int(code)

    def _listen(self) -> None:
        self.said.extend(self.process.stdout)


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_speaker(tmp_path_factory.mktemp("serve") / "speaker")


@pytest.fixture(scope="module")
def serving(speaker: Path, pytestconfig: pytest.Config) -> Iterator[Serving]:
    assert pytestconfig.cache is not None
    running = Serving(speaker, pytestconfig.cache.mkdir("jax"))  # what the engine's own tests compiled is not compiled again
    yield running
    assert running.end() == 0
    assert "served; every worker is gone" in "".join(running.said)


def direct(speaker: Path, prompt: str, new: int, temperature: float = 0.0, seed: int = 0) -> str:
    model, tokenizer = load_release(speaker), Tokenizer.from_file(str(speaker / "tokenizer.json"))
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    settings = {"temperature": temperature, "seed": seed, "end_id": END_OF_TEXT_ID}
    return str(tokenizer.decode(sample(model.params, model.router_bias, model.config, ids, new, **settings)))  # type: ignore[arg-type]


def test_the_official_client_gets_what_direct_generation_gives(serving: Serving, speaker: Path) -> None:
    client = serving.client
    assert [model.id for model in client.models.list()] == ["speaker"]
    greedy = client.completions.create(model="speaker", prompt="the tide", max_tokens=10, temperature=0, logprobs=2)
    assert greedy.choices[0].text == direct(speaker, "the tide", 10)
    assert greedy.usage is not None
    assert (greedy.usage.completion_tokens, greedy.choices[0].finish_reason) == (10, "length")
    logprobs = greedy.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert all(-20 < (value or 0) < 0 for value in logprobs.token_logprobs)
    drawn = client.completions.create(model="speaker", prompt="the sea", max_tokens=10, temperature=1, seed=5)
    assert drawn.choices[0].text == direct(speaker, "the sea", 10, temperature=1.0, seed=5)


def test_chats_stream_with_their_usage(serving: Serving, speaker: Path) -> None:
    asked: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "the tide?"}]
    *chunks, last = serving.client.chat.completions.create(
        model="speaker", messages=asked, max_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == direct(speaker, "User: the tide?\n\nAssistant:", 12).removeprefix(" ")
    assert last.usage is not None
    assert last.usage.completion_tokens == 12
    whole = serving.client.chat.completions.create(
        model="speaker", messages=asked, max_completion_tokens=12, temperature=0, logprobs=True, top_logprobs=1
    )
    assert whole.choices[0].message.content == text
    assert whole.choices[0].logprobs is not None
    assert len(whole.choices[0].logprobs.content or ()) > 0


def test_requests_beside_each_other_get_their_own_answers(serving: Serving, speaker: Path) -> None:
    def ask(seed: int) -> str:
        created = serving.client.completions.create(
            model="speaker", prompt="the " * (1 + seed % 4), max_tokens=8 + seed, temperature=1, seed=seed
        )
        return created.choices[0].text

    with ThreadPoolExecutor(9) as pool:
        found = list(pool.map(ask, range(9)))
    assert found == [direct(speaker, "the " * (1 + seed % 4), 8 + seed, temperature=1.0, seed=seed) for seed in range(9)]


def test_what_does_not_fit_is_the_clients_error(serving: Serving) -> None:
    with pytest.raises(openai.BadRequestError, match=f"context is {CONTEXT_TOKENS} tokens") as declined:
        serving.client.completions.create(model="speaker", prompt="z" * 200)
    assert declined.value.param == "prompt"


def test_a_stream_outlives_a_worker_that_is_killed(serving: Serving, speaker: Path) -> None:
    pieces: list[str] = []
    with serving.client.completions.create(model="speaker", prompt="and the", max_tokens=64, temperature=1, seed=11, stream=True) as stream:
        for piece in stream:
            pieces.append(piece.choices[0].text)
            if len(pieces) == 3:
                (worker,) = serving.workers()
                worker.kill()
    assert "".join(pieces) == direct(speaker, "and the", 64, temperature=1.0, seed=11)
    assert worker.pid not in {another.pid for another in serving.workers()}


def published(store: ArtifactStore, asset: str, program: str, digest: str, inputs: dict[str, object]) -> Artifact:
    """A manifest alone: it is all that is looked at."""
    recipe = digest[:16]
    address = store.address(asset, None, recipe)
    manifest = Manifest(
        recipe=recipe, payload={"program": program, "inputs": inputs}, digest=digest, directory="attempt-0", files=(), stats={}
    )
    Path(address).mkdir(parents=True)
    (Path(address) / MANIFEST_NAME).write_text(manifest.model_dump_json())
    return Artifact(address, manifest)


@pytest.fixture
def lineage(tmp_path: Path) -> dict[str, Artifact]:
    """A checkpoint whose store was made of tokens, those with a tokenizer; and a younger tokenizer that has nothing to do with it."""
    store, names = ArtifactStore(str(tmp_path / "root")), ("tokenizer", "other", "tokens", "store", "hero", "release")
    digest = {name: f"{number:x}" * 64 for number, name in enumerate(names, 1)}
    train = train_tokenizer.name
    return {
        "tokenizer": published(store, "tokenizer", train, digest["tokenizer"], {}),
        "other": published(store, "tokenizer", train, digest["other"], {}),
        "tokens": published(store, "tokens", "tokenize", digest["tokens"], {"tokenizer": digest["tokenizer"]}),
        "store": published(store, "store", "build_store", digest["store"], {"tokens": {"a": digest["tokens"]}}),
        "hero": published(store, "hero", "train", digest["hero"], {"store": digest["store"]}),
        "release": published(store, "release", release.name, digest["release"], {"checkpoint": digest["hero"]}),
    }


def test_a_checkpoint_is_served_with_the_tokenizer_its_data_was_made_with(lineage: dict[str, Artifact]) -> None:
    command, name = command_for(lineage["hero"].url, "seaway", 4)
    assert command == WorkerCommand("model.serving.load:checkpoint_artifact", (lineage["hero"].url, lineage["tokenizer"].url, "4"))
    assert name == "hero"
    assert command_for(lineage["release"].url, "seaway", 4)[0] == WorkerCommand(
        "model.serving.load:release_artifact", (lineage["release"].url, "4")
    )


def test_a_checkpoint_without_a_tokenizer_in_its_storage_is_refused(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    alone = published(store, "hero", "train", "7" * 64, {"store": "8" * 64})
    with pytest.raises(ServeError, match="was made with no tokenizer that lies in"):
        tokenizer_of(alone, store)


def test_an_engine_that_is_not_installed_is_refused_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.serving.upstream.find_spec", lambda package: None)
    with pytest.raises(MissingEngineError, match=r"pip install 'seaway\[vllm\]'"):
        command_for("some/model", "vllm", 4)


def test_a_node_of_the_lineage_is_its_newest_artifact(lineage: dict[str, Artifact]) -> None:
    store = ArtifactStore(lineage["hero"].url.rsplit("/", 3)[0])
    assert newest_in(store, "hero") == lineage["hero"]
    with pytest.raises(ServeError, match=r"cooldown is not published in .*; run `seaway demo` or materialize it"):
        newest_in(store, "cooldown")
    with pytest.raises(UnknownNodeError, match="the lineage has no asset 'nosuch'; choose one of"):
        newest_in(store, "nosuch")


def test_inner_clocks_follow_the_patience_with_a_request() -> None:
    limits = limits_for(60.0)
    assert limits.engine_s < limits.lease_s < limits.request_s == 60.0
