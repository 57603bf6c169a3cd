"""Somebody else's engine: vLLM or SGLang, each as the OpenAI-compatible server that it is, started beside its worker.

The worker forwards requests to it over loopback and gives the broker the same answers as our own engine does. The server lives in the
worker's process group and dies with it. These engines batch as they like, so two attempts at one request may differ: a stream that
was begun ends in an error then, never in a text of two halves.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import httpx

from infra.serving.openai_api import Answer, RequestDeclined, TokenLogprob
from infra.supervise.processes import PARENT_VARIABLE

SERVED_NAME = "served"
POLL_S = 0.5
FORWARDED = ("prompt", "messages", "temperature", "top_p", "seed", "stop")
NO_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None)


class MissingEngineError(RuntimeError):
    """The engine is not installed; the message has the line that installs it."""


class UpstreamFailed(RuntimeError):  # noqa: N818
    """The server ended, or answered with something that is no answer."""


def vllm(model: str, slots: str, *arguments: str) -> "UpstreamEngine":
    """vLLM on a model that it knows: a folder or a name; further arguments are those of `vllm serve`.

    Raises:
        MissingEngineError: vLLM is not installed.
    """
    require("vllm")
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model, "--served-model-name", SERVED_NAME]
    return UpstreamEngine([*command, "--max-num-seqs", slots, *arguments], int(slots))


def sglang(model: str, slots: str, *arguments: str) -> "UpstreamEngine":
    """SGLang on a model that it knows; further arguments are those of `sglang.launch_server`.

    Raises:
        MissingEngineError: SGLang is not installed.
    """
    require("sglang")
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", model, "--served-model-name", SERVED_NAME]
    return UpstreamEngine([*command, "--max-running-requests", slots, *arguments], int(slots))


def require(package: str) -> None:
    """Raise `MissingEngineError` unless a package is installed."""
    if find_spec(package) is None:
        raise MissingEngineError(
            f"{package} is not installed here: pip install 'seaway[{package}]' on a machine with a GPU, or serve a release of ours"
        )


class UpstreamEngine:
    """A server beside this worker, as an `infra.serving.worker.Engine`. Making it waits until the server answers.

    Args:
        command: starts the server; `--host` and `--port` are added.
        slots: requests at a time.

    Raises:
        UpstreamFailed: the server ended before it answered.
    """

    def __init__(self, command: Sequence[str], slots: int) -> None:
        self.slots = slots
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        environment = {**os.environ, PARENT_VARIABLE: str(os.getpid())}
        argv = [sys.executable, "-P", "-m", "infra.serving.child", *command, "--host", "127.0.0.1", "--port", str(port)]
        self._server = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL)
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}/v1", timeout=None, limits=NO_LIMITS)
        self._model = self._wait()

    def close(self) -> None:
        """End the server."""
        self._client.close()
        self._server.terminate()
        self._server.wait()

    def generate(self, body: Mapping[str, Any], say: Callable[[Sequence[str]], None]) -> Answer:
        """Forward one request; see `infra.serving.worker.Engine`.

        Raises:
            RequestDeclined: the server says that the request is wrong.
            UpstreamFailed: it failed.
        """
        is_chat = "messages" in body
        path = "/chat/completions" if is_chat else "/completions"
        asked = {"model": self._model, **{name: body[name] for name in FORWARDED if name in body}}
        if body.get("max_tokens") is not None:
            asked["max_tokens"] = body["max_tokens"]
        if body.get("listed") is not None:
            asked |= {"logprobs": True, "top_logprobs": body["listed"]} if is_chat else {"logprobs": body["listed"]}
        if not body.get("stream"):
            return self._whole(path, asked, is_chat)
        return self._stream(path, {**asked, "stream": True, "stream_options": {"include_usage": True}}, is_chat, say)

    def _whole(self, path: str, asked: dict[str, Any], is_chat: bool) -> Answer:
        reply = self._client.post(path, json=asked)
        _require_answer(reply.status_code, reply.content)
        told = reply.json()
        choice = told["choices"][0]
        text = choice["message"]["content"] or "" if is_chat else choice["text"]
        logprobs = _chat_logprobs(choice.get("logprobs")) if is_chat else _text_logprobs(choice.get("logprobs"))
        return _answer(text, choice["finish_reason"], told["usage"], logprobs)

    def _stream(self, path: str, asked: dict[str, Any], is_chat: bool, say: Callable[[Sequence[str]], None]) -> Answer:
        text, finish_reason, usage = "", None, None
        with self._client.stream("POST", path, json=asked) as reply:
            if reply.status_code != httpx.codes.OK:
                _require_answer(reply.status_code, reply.read())
            for told in _events(reply):
                if "error" in told:
                    raise UpstreamFailed(str(told["error"]))
                usage = told.get("usage") or usage
                for choice in told["choices"]:
                    piece = (choice["delta"].get("content") if is_chat else choice["text"]) or ""
                    text, finish_reason = text + piece, choice.get("finish_reason") or finish_reason
                    say([piece] if piece else [])
        if usage is None:
            raise UpstreamFailed("the stream ended before its usage; the server was cut off")
        return _answer(text, finish_reason, usage, None)

    def _wait(self) -> str:
        """The name of the served model, once the server answers."""
        while True:
            if (code := self._server.poll()) is not None:
                raise UpstreamFailed(f"the engine's server ended with {code} before it answered; read what it printed")
            try:
                reply = self._client.get("/models")
            except httpx.TransportError:
                time.sleep(POLL_S)
                continue
            if reply.status_code == httpx.codes.OK:
                return str(reply.json()["data"][0]["id"])
            time.sleep(POLL_S)


def _require_answer(status: int, content: bytes) -> None:
    if status == httpx.codes.OK:
        return
    try:
        told = json.loads(content)
        error = told.get("error", told)
        why, param = str(error.get("message", error)), error.get("param")
    except (ValueError, AttributeError):
        why, param = content[:500].decode(errors="replace"), None
    if status in (400, 422):
        raise RequestDeclined(why, param)
    raise UpstreamFailed(f"the engine's server answered {status}: {why}")


def _events(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    """Server-sent events as JSON. An event's data has no line break, so lines end at LF alone."""
    rest = b""
    for chunk in reply.iter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and data != b"[DONE]":
                yield json.loads(data)


def _answer(text: str, finish_reason: str | None, usage: Mapping[str, int], logprobs: tuple[TokenLogprob, ...] | None) -> Answer:
    return Answer(
        text=text,
        finish_reason="length" if finish_reason == "length" else "stop",
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        logprobs=logprobs,
    )


def _text_logprobs(told: Mapping[str, Any] | None) -> tuple[TokenLogprob, ...] | None:
    if told is None:
        return None
    tops = told.get("top_logprobs") or [None] * len(told["tokens"])
    return tuple(
        TokenLogprob(token=token, offset=offset, logprob=logprob, top=tuple(sorted((top or {}).items(), key=lambda one: -one[1])))
        for token, offset, logprob, top in zip(told["tokens"], told["text_offset"], told["token_logprobs"], tops, strict=True)
    )


def _chat_logprobs(told: Mapping[str, Any] | None) -> tuple[TokenLogprob, ...] | None:
    if told is None:
        return None
    found, offset = [], 0
    for one in told["content"]:
        top = tuple((other["token"], other["logprob"]) for other in one["top_logprobs"])
        found.append(TokenLogprob(token=one["token"], offset=offset, logprob=one["logprob"], top=top))
        offset += len(one["token"])
    return tuple(found)
