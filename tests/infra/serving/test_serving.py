"""The official client against a real proxy with real worker processes, which get killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from infra.serving.limits import ServingLimits
from infra.serving.worker import load_engine
from tests.infra.dispatch.builders import wait_for
from tests.infra.serving.served import ENGINE, LIMITS, RUN, SOURCES, Served


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def start(workers: int, limits: ServingLimits = LIMITS, engine: str = ENGINE, arguments: tuple[str, ...] = ()) -> Served:
        started.append(Served(workers, limits, engine, arguments))
        return started[-1]

    yield start
    for served in started:
        served.close()


@pytest.fixture(scope="module")
def quiet() -> Iterator[openai.OpenAI]:
    """The client of a pool that nothing happens to."""
    served = Served(workers=1)
    yield served.client()
    served.close()


def test_the_official_client_gets_completions_chats_and_streams(quiet: openai.OpenAI):
    client = quiet
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


def test_what_cannot_be_honoured_is_refused_by_name(quiet: openai.OpenAI):
    client = quiet
    with pytest.raises(openai.NotFoundError, match="model 'gpt' is not served here; there is echo"):
        client.completions.create(model="gpt", prompt="x")
    with pytest.raises(openai.BadRequestError, match="n: Input should be 1"):
        client.completions.create(model="echo", prompt="x", n=2)
    with pytest.raises(openai.BadRequestError, match=r"stop: .*an empty string stops everything"):
        client.completions.create(model="echo", prompt="x", stop=["a", ""])
    with pytest.raises(openai.BadRequestError, match="prompt") as unfit:
        client.post("/completions", body={"model": "echo", "prompt": {"a": 1}}, cast_to=object)
    assert unfit.value.param == "prompt"
    with pytest.raises(openai.BadRequestError, match="logit_bias: Extra inputs are not permitted"):
        client.completions.create(model="echo", prompt="x", logit_bias={"1": 1})


def test_a_request_that_no_engine_can_answer_is_the_clients_error(quiet: openai.OpenAI):
    client = quiet
    with pytest.raises(openai.BadRequestError, match="the prompt has 9 tokens and the context is 8") as declined:
        client.completions.create(model="echo", prompt="too long")
    assert declined.value.param == "prompt"
    with pytest.raises(openai.BadRequestError, match="logprobs come with whole answers; leave out stream"):
        client.completions.create(model="echo", prompt="x", logprobs=1, stream=True)


def test_a_stream_ends_with_what_it_cost_if_asked(quiet: openai.OpenAI):
    *pieces, last = quiet.completions.create(model="echo", prompt="the tide", stream=True, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.completion_tokens, [piece.usage for piece in pieces]) == (2, [None] * len(pieces))


def test_a_worker_answers_as_many_side_by_side_as_it_has_slots(serve: Callable[..., Served]):
    served = serve(workers=1, engine=ENGINE, arguments=("3",))
    with ThreadPoolExecutor(5) as pool:
        asked = [pool.submit(_outcome, served.client(), f"slow a b c d e f g {n}") for n in range(5)]
        wait_for(lambda: (state := served.state())["leased"] == 3 and state["waiting"] == 2, "full slots")
        assert [future.result() for future in asked] == [f"slow a b c d e f g {n}" for n in range(5)]


def test_whoever_shares_a_worker_with_poison_gets_an_answer(serve: Callable[..., Served]):
    served = serve(workers=1, limits=LIMITS.model_copy(update={"attempts": 2}), engine=ENGINE, arguments=("4",))
    prompts = ["slow a b c", "poison", "slow d e f", "slow g h i"]
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda prompt: _outcome(served.client(), prompt), prompts))
    assert outcomes == ["slow a b c", "dead letter", "slow d e f", "slow g h i"]


def test_a_leaving_pool_finishes_what_was_begun_and_turns_the_rest_away(serve: Callable[..., Served]):
    served = serve(workers=1)
    with ThreadPoolExecutor(2) as pool:
        begun = pool.submit(_outcome, served.client(), "slow a b c d e f g h i j")
        wait_for(lambda: served.state()["leased"] == 1, "work")
        waits = pool.submit(served.client().completions.create, model="echo", prompt="waits")
        wait_for(lambda: served.state()["waiting"] == 1, "a queue")
        served.process.send_signal(signal.SIGTERM)
        with pytest.raises(openai.InternalServerError, match="shutting down"):
            waits.result()
        assert begun.result() == "slow a b c d e f g h i j"
    assert served.process.wait(timeout=30) == 0


def test_a_drain_that_takes_too_long_hands_requests_back_uncharged(serve: Callable[..., Served]):
    limits = LIMITS.model_copy(update={"drain_s": 0.3})
    served = serve(workers=0, limits=limits)
    command = [sys.executable, "-P", "-m", "infra.serving.worker", served.url, "--engine", ENGINE, "--limits", limits.model_dump_json()]
    start = lambda: subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(SOURCES)})  # noqa: E731
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_outcome, served.client(), "slow " + "word " * 12)
        first = start()
        wait_for(lambda: served.state()["leased"] == 1, "work")
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=30) == 0
        state = served.state()
        assert (state["waiting"], state["expired"], state["failed"], state["lost"]) == (1, 0, 0, 0)
        second = start()
        assert asked.result() == "slow " + "word " * 12
        second.send_signal(signal.SIGTERM)
        assert second.wait(timeout=30) == 0


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
    assert served.state()["lost"] >= 1


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
