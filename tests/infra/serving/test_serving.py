"""The official client against a real proxy with real worker processes, which get killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import psutil
import pytest

from infra.serving.limits import ServingLimits
from infra.serving.worker import load_engine
from tests.infra.dispatch.builders import wait_for

SOURCES = Path(__file__).parents[3]
LIMITS = ServingLimits(engine_s=5, lease_s=6, request_s=60, poll_s=0.2, silence_s=1.0, pending=8, attempts=3, retry_after_s=1)
ENGINE = "tests.infra.serving.engines:echo"
RUN = """
import asyncio, sys
from infra.serving.limits import ServingLimits
from infra.serving.pool import WorkerCommand, serve
limits, workers, port = ServingLimits.model_validate_json(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
asyncio.run(serve(["echo"], WorkerCommand(sys.argv[4]), limits, workers=workers, host="127.0.0.1", port=port))
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Served:
    """A pool in a process of its own."""

    def __init__(self, workers: int, limits: ServingLimits = LIMITS, engine: str = ENGINE) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        env = {**os.environ, "PYTHONPATH": f"{SOURCES}:{os.environ.get('PYTHONPATH', '')}"}
        command = [sys.executable, "-c", RUN, limits.model_dump_json(), str(workers), str(port), engine]
        self._clients: list[openai.OpenAI] = []
        self.process = psutil.Popen(command, env=env, cwd=SOURCES, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self._answers, "the proxy")

    def client(self) -> openai.OpenAI:
        self._clients.append(openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", timeout=60, max_retries=0))
        return self._clients[-1]

    def close(self) -> None:
        """End the pool, and require that it took its workers along."""
        for client in self._clients:
            client.close()
        children = self.process.children(recursive=True)
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]

    def workers(self) -> list[psutil.Process]:
        return [child for child in self.process.children() if child.status() != psutil.STATUS_ZOMBIE]

    def state(self) -> dict[str, int]:
        return dict(httpx.get(f"{self.url}/broker/state", timeout=10).json())

    def _answers(self) -> bool:
        assert self.process.poll() is None
        try:
            return httpx.get(f"{self.url}/v1/models", timeout=10).status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def start(workers: int, limits: ServingLimits = LIMITS) -> Served:
        started.append(Served(workers, limits))
        return started[-1]

    yield start
    for served in started:
        served.close()


def test_the_official_client_gets_completions_chats_and_streams(serve: Callable[..., Served]):
    client = serve(workers=1).client()
    assert [model.id for model in client.models.list()] == ["echo"]
    completion = client.completions.create(model="echo", prompt="the tide comes in", max_tokens=2)
    assert (completion.choices[0].text, completion.choices[0].finish_reason) == ("the tide", "length")
    assert completion.usage is not None
    assert completion.usage.total_tokens == 3
    chat = client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "the tide"}])
    assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == ("the tide", "stop")
    pieces = list(client.completions.create(model="echo", prompt="the tide comes in", stream=True))
    assert [piece.choices[0].text for piece in pieces] == ["the", " tide", " comes", " in", ""]
    assert pieces[-1].choices[0].finish_reason == "stop"
    chunks = list(client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "in and out"}], stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "in and out"


def test_what_cannot_be_honoured_is_refused_by_name(serve: Callable[..., Served]):
    client = serve(workers=0).client()
    with pytest.raises(openai.NotFoundError, match="model 'gpt' is not served here; there is echo"):
        client.completions.create(model="gpt", prompt="x")
    with pytest.raises(openai.BadRequestError, match="n: Input should be 1"):
        client.completions.create(model="echo", prompt="x", n=2)
    with pytest.raises(openai.BadRequestError, match="logit_bias: Extra inputs are not permitted"):
        client.completions.create(model="echo", prompt="x", logit_bias={"1": 1})


def test_a_full_queue_is_429_with_a_time_to_come_back(serve: Callable[..., Served]):
    served = serve(workers=0)
    with ThreadPoolExecutor(LIMITS.pending) as pool:
        patient = [pool.submit(_outcome, served.client(), "waits") for _ in range(LIMITS.pending)]
        wait_for(lambda: served.state()["waiting"] == LIMITS.pending, "a full queue")
        with pytest.raises(openai.RateLimitError) as refused:
            served.client().completions.create(model="echo", prompt="one too many")
        assert refused.value.response.headers["Retry-After"] == "1"
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "infra.serving.worker", served.url, "--engine", ENGINE],
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )
        assert [future.result() for future in patient] == ["waits"] * LIMITS.pending
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == 0, "a drained worker leaves in good order"


def test_a_request_whose_client_is_gone_is_dropped(serve: Callable[..., Served]):
    served = serve(workers=0)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{served.url}/v1/completions", json={"model": "echo", "prompt": "bye"}, timeout=0.5)
    wait_for(lambda: served.state()["abandoned"] == 1, "the request is dropped")
    assert served.state()["waiting"] == 0


def test_a_stream_goes_on_where_a_killed_worker_left_it(serve: Callable[..., Served]):
    served = serve(workers=2)
    prompt = "slow " + " ".join(f"word{n}" for n in range(12))
    pieces = []
    with served.client().completions.create(model="echo", prompt=prompt, max_tokens=100, stream=True) as stream:
        for piece in stream:
            pieces.append(piece.choices[0].text)
            if len(pieces) == 4:
                for worker in served.workers():
                    worker.kill()
    assert "".join(pieces) == prompt
    assert served.state()["expired"] >= 1


def _outcome(client: openai.OpenAI, prompt: str) -> str:
    while True:
        try:
            return client.completions.create(model="echo", prompt=prompt, max_tokens=100).choices[0].text
        except openai.RateLimitError:
            time.sleep(0.1)
        except openai.InternalServerError as error:
            return str(error.code).replace("_", " ")


def test_while_workers_are_killed_each_request_gets_its_answer_or_one_dead_letter(serve: Callable[..., Served]):
    served = serve(workers=3)
    prompts = [("raise " if n % 50 == 7 else "slow " if n % 50 == 9 else "") + f"request {n}" for n in range(150)]
    client = served.client()
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(_outcome, client, prompt) for prompt in prompts]
        for killed in range(8):
            wait_for(lambda killed=killed: served.state()["answered"] >= 12 * (killed + 1), "some answers")  # type: ignore[misc]
            wait_for(served.workers, "a worker")[killed % len(served.workers())].kill()
        outcomes = [future.result() for future in asked]
    for prompt, outcome in zip(prompts, outcomes, strict=True):
        assert outcome == ("dead letter" if prompt.startswith("raise") else prompt) or outcome == "dead letter"
    assert sum(outcome == "dead letter" for outcome in outcomes) < 20
    state = served.state()
    assert state["submitted"] == state["answered"] + state["dead_letters"]
    assert (state["waiting"], state["leased"]) == (0, 0)


def test_a_pool_whose_workers_can_not_start_ends_with_the_reason():
    command = [sys.executable, "-c", RUN, LIMITS.model_dump_json(), "1", "0", "tests.infra.serving.engines:absent"]
    ended = subprocess.run(
        command, cwd=SOURCES, env={**os.environ, "PYTHONPATH": str(SOURCES)}, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 1
    assert "engine 'tests.infra.serving.engines:absent' can't be loaded" in ended.stderr
    assert "5 workers in a row ended with an exit code (the last with 1)" in ended.stderr


def test_an_engine_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="name it as module:function"):
        load_engine("tests.infra.serving.engines:absent", [])
