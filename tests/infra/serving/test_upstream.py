"""Somebody else's engine behind our proxy: the same answers, and no server that outlives its worker."""

import os
from collections.abc import Iterator
from typing import Any

import openai
import psutil
import pytest

from infra.serving.limits import ServingLimits
from infra.serving.openai_api import Answer, RequestDeclined, TokenLogprob
from infra.serving.upstream import MissingEngineError, UpstreamEngine, UpstreamFailed, _chat_logprobs, _text_logprobs, require, sglang, vllm
from tests.infra.dispatch.builders import wait_for
from tests.infra.serving.engines import upstream
from tests.infra.serving.served import SOURCES, Served

PATIENT = ServingLimits(engine_s=20, lease_s=30, request_s=90, poll_s=0.2, silence_s=5.0, pending=8, attempts=3)


@pytest.fixture(scope="module")
def engine() -> Iterator[UpstreamEngine]:
    os.environ["PYTHONPATH"] = f"{SOURCES}:{os.environ.get('PYTHONPATH', '')}"
    made = upstream()
    yield made
    made.close()


def asked(prompt: str, **fields: Any) -> dict[str, Any]:
    usual = {
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 0,
        "max_tokens": None,
        "stop": (),
        "stream": False,
        "listed": None,
    }
    return {"prompt": prompt, **usual, **fields}


def test_whole_answers_streams_and_chats_come_through(engine: UpstreamEngine) -> None:
    whole = Answer(text="the tide", finish_reason="length", prompt_tokens=1, completion_tokens=2)
    assert engine.generate(asked("the tide comes in", max_tokens=2), lambda pieces: None) == whole
    heard: list[str] = []
    assert engine.generate(asked("the tide comes in", max_tokens=2, stream=True), heard.extend) == whole
    assert heard == ["the", " tide"]
    chat = {name: value for name, value in asked("").items() if name != "prompt"}
    told = engine.generate({**chat, "messages": [{"role": "user", "content": "out\u2028and in"}], "stream": True}, heard.extend)
    assert (told.text, told.finish_reason) == ("out\u2028and in", "stop")


def test_a_request_that_the_server_declines_is_declined_and_one_that_it_fails_fails(engine: UpstreamEngine) -> None:
    for stream in (False, True):
        with pytest.raises(RequestDeclined, match="the prompt has 9 tokens and the context is 8"):
            engine.generate(asked("too long", stream=False), lambda pieces: None)
        with pytest.raises(UpstreamFailed, match="does not like this prompt"):
            engine.generate(asked("raise", stream=stream), lambda pieces: None)


def test_a_server_that_ends_before_it_answers_is_an_error() -> None:
    with pytest.raises(UpstreamFailed, match="ended with 3 before it answered"):
        UpstreamEngine(["sh", "-c", "exit 3"], 1)


def test_a_killed_worker_takes_its_server_along_and_the_request_goes_to_the_next() -> None:
    served = Served(1, PATIENT, "tests.infra.serving.engines:upstream")
    try:
        client = served.client()
        assert client.completions.create(model="echo", prompt="the tide").choices[0].text == "the tide"
        (worker,) = served.workers()
        family = worker.children(recursive=True)
        assert len(family) >= 2, "the server, and a worker of its own"
        worker.kill()
        assert client.completions.create(model="echo", prompt="comes in").choices[0].text == "comes in"
        wait_for(lambda: not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE], "all are gone")
        with pytest.raises(openai.BadRequestError, match="the context is 8"):
            client.completions.create(model="echo", prompt="too long")
    finally:
        served.close()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_that_is_not_installed_says_how_to_install_it(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.serving.upstream.find_spec", lambda package: None)
    with pytest.raises(MissingEngineError, match=rf"{engine} is not installed here: pip install 'seaway\[{engine}\]'"):
        require(engine)
    with pytest.raises(MissingEngineError):
        {"vllm": vllm, "sglang": sglang}[engine]("model", "1")


def test_log_probabilities_of_both_kinds_of_answers_are_read() -> None:
    expected = (
        TokenLogprob(token="a", offset=0, logprob=-1.0, top=(("a", -1.0), ("b", -2.0))),
        TokenLogprob(token="c", offset=1, logprob=-3.0),
    )
    text = {"tokens": ["a", "c"], "token_logprobs": [-1.0, -3.0], "text_offset": [0, 1], "top_logprobs": [{"b": -2.0, "a": -1.0}, None]}
    assert _text_logprobs(text) == expected
    top = [{"token": "a", "logprob": -1.0}, {"token": "b", "logprob": -2.0}]
    chat = {"content": [{"token": "a", "logprob": -1.0, "top_logprobs": top}, {"token": "c", "logprob": -3.0, "top_logprobs": []}]}
    assert _chat_logprobs(chat) == expected
    assert _text_logprobs(None) is None
