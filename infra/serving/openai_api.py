"""The shapes of the OpenAI API that are served: completions and chat completions. What can't be honoured is refused, not ignored."""

import time
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    max_tokens: int = Field(default=256, ge=1)
    temperature: float = Field(default=1.0, ge=0)
    seed: int = 0
    stop: tuple[str, ...] = ()
    stream: bool = False
    n: Literal[1] = 1
    user: str | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_many(cls, stop: Any) -> Any:
        return () if stop is None else (stop,) if isinstance(stop, str) else stop


class CompletionRequest(_Request):
    """`POST /v1/completions`."""

    prompt: str


class ChatMessage(BaseModel):
    """One turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["system", "user", "assistant"]
    content: str


class ChatRequest(_Request):
    """`POST /v1/chat/completions`."""

    messages: tuple[ChatMessage, ...] = Field(min_length=1)


class Answer(BaseModel):
    """What a worker's engine returns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    finish_reason: Literal["stop", "length"]
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)


def error(message: str, kind: str = "invalid_request_error", *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error as the official clients read it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def invalid(found: ValidationError) -> dict[str, Any]:
    """What is wrong with a request, each field by name."""
    problems = [(".".join(map(str, problem["loc"])) or "request", problem["msg"]) for problem in found.errors()]
    return error("; ".join(f"{field}: {message}" for field, message in problems), param=problems[0][0])


def whole(request: CompletionRequest | ChatRequest, request_id: str, answer: Answer) -> dict[str, Any]:
    """The response to a request that doesn't stream."""
    usage = {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }
    if isinstance(request, ChatRequest):
        choice: Mapping[str, Any] = {"message": {"role": "assistant", "content": answer.text, "refusal": None}}
    else:
        choice = {"text": answer.text}
    return {**_envelope(request, request_id, chunk=False), "choices": [_choice(choice, answer.finish_reason)], "usage": usage}


def piece(request: CompletionRequest | ChatRequest, request_id: str, text: str, finish_reason: str | None) -> dict[str, Any]:
    """One event of a stream."""
    if isinstance(request, ChatRequest):
        choice: Mapping[str, Any] = {"delta": {} if finish_reason else {"role": "assistant", "content": text}}
    else:
        choice = {"text": text}
    return {**_envelope(request, request_id, chunk=True), "choices": [_choice(choice, finish_reason)]}


def _choice(content: Mapping[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "logprobs": None, "finish_reason": finish_reason, **content}


def _envelope(request: CompletionRequest | ChatRequest, request_id: str, *, chunk: bool) -> dict[str, Any]:
    chat = isinstance(request, ChatRequest)
    kind = ("chat.completion.chunk" if chunk else "chat.completion") if chat else "text_completion"
    return {"id": f"{'chatcmpl' if chat else 'cmpl'}-{request_id}", "object": kind, "created": int(time.time()), "model": request.model}
