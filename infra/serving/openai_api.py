"""The shapes of the OpenAI API that are served: completions and chat completions. What can't be honoured is refused, not ignored."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

TOP_LOGPROBS = 5  # alternatives that an answer may list beside each token


class StreamOptions(BaseModel):
    """What a stream ends with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    include_usage: bool = False


class _Request(BaseModel, ABC):
    """What both ways to ask have in common.

    Attributes:
        max_tokens: new tokens at most; None leaves it to the engine.
        seed: of the draws. None is replaced by a number of the proxy's, so that a second attempt repeats the first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] = 1
    user: str | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_many(cls, stop: Any) -> Any:
        return () if stop is None else (stop,) if isinstance(stop, str) else stop

    @field_validator("stop")
    @classmethod
    def _not_empty(cls, stop: tuple[str, ...]) -> tuple[str, ...]:
        if not all(stop):
            raise ValueError("an empty string stops everything; leave it out")
        return stop

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with what it cost."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    @abstractmethod
    def listed(self) -> int | None:
        """Alternatives to list beside each token's log-probability; None: no log-probabilities."""

    @model_validator(mode="after")
    def _logprobs_come_whole(self) -> Self:
        if self.stream and self.listed is not None:
            raise ValueError("logprobs come with whole answers; leave out stream")
        return self


class CompletionRequest(_Request):
    """`POST /v1/completions`. The prompt is text, or the ids of its tokens."""

    prompt: str | tuple[int, ...]
    logprobs: int | None = Field(default=None, ge=0, le=TOP_LOGPROBS)

    @property
    def listed(self) -> int | None:
        return self.logprobs


class ChatMessage(BaseModel):
    """One turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["system", "user", "assistant"]
    content: str


class ChatRequest(_Request):
    """`POST /v1/chat/completions`."""

    messages: tuple[ChatMessage, ...] = Field(min_length=1)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=TOP_LOGPROBS)

    @model_validator(mode="before")
    @classmethod
    def _newer_name(cls, asked: Any) -> Any:
        """`max_completion_tokens` is what newer clients call `max_tokens`."""
        if isinstance(asked, dict) and "max_completion_tokens" in asked and "max_tokens" not in asked:
            return {"max_tokens" if name == "max_completion_tokens" else name: value for name, value in asked.items()}
        return asked

    @property
    def listed(self) -> int | None:
        return self.top_logprobs if self.logprobs else None


class TokenLogprob(BaseModel):
    """One token of an answer.

    Attributes:
        offset: of its text in the answer's, in characters.
        logprob: natural logarithm of its probability, before temperature and nucleus.
        top: the likeliest tokens there with theirs, likeliest first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: str
    offset: int
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class Answer(BaseModel):
    """What a worker's engine returns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    finish_reason: Literal["stop", "length"]
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)
    logprobs: tuple[TokenLogprob, ...] | None = None

    @property
    def usage(self) -> dict[str, int]:
        """What it cost."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


class RequestDeclined(ValueError):  # noqa: N818 - the client's error, not the engine's
    """A request that no engine of this model can answer, such as a prompt longer than the context. The client is told.

    Args:
        why: a sentence for the client.
        param: the field that is wrong.
    """

    def __init__(self, why: str, param: str | None = None) -> None:
        self.param = param
        super().__init__(why)


def error(message: str, kind: str = "invalid_request_error", *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error as the official clients read it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def invalid(found: ValidationError) -> dict[str, Any]:
    """What is wrong with a request, each field by name."""
    problems = [(".".join(map(str, problem["loc"])) or "request", problem["msg"]) for problem in found.errors()]
    return error("; ".join(f"{field}: {message}" for field, message in problems), param=problems[0][0].partition(".")[0])


def whole(request: CompletionRequest | ChatRequest, request_id: str, answer: Answer) -> dict[str, Any]:
    """The response to a request that doesn't stream."""
    if isinstance(request, ChatRequest):
        choice: Mapping[str, Any] = {"message": {"role": "assistant", "content": answer.text, "refusal": None}}
    else:
        choice = {"text": answer.text}
    logprobs = None if request.listed is None or answer.logprobs is None else _logprobs(request, answer.logprobs)
    choices = [_choice(choice, answer.finish_reason) | {"logprobs": logprobs}]
    return {**_envelope(request, request_id, chunk=False), "choices": choices, "usage": answer.usage}


def piece(request: CompletionRequest | ChatRequest, request_id: str, text: str, finish_reason: str | None) -> dict[str, Any]:
    """One event of a stream."""
    if isinstance(request, ChatRequest):
        choice: Mapping[str, Any] = {"delta": {} if finish_reason else {"role": "assistant", "content": text}}
    else:
        choice = {"text": text}
    return {**_envelope(request, request_id, chunk=True), "choices": [_choice(choice, finish_reason)]}


def cost(request: CompletionRequest | ChatRequest, request_id: str, answer: Answer) -> dict[str, Any]:
    """The last event of a stream that was asked for its usage."""
    return {**_envelope(request, request_id, chunk=True), "choices": [], "usage": answer.usage}


def _logprobs(request: CompletionRequest | ChatRequest, tokens: tuple[TokenLogprob, ...]) -> dict[str, Any]:
    if isinstance(request, ChatRequest):
        content = [{**_chat_token(one.token, one.logprob), "top_logprobs": [_chat_token(*other) for other in one.top]} for one in tokens]
        return {"content": content, "refusal": None}
    return {
        "tokens": [one.token for one in tokens],
        "token_logprobs": [one.logprob for one in tokens],
        "top_logprobs": [_by_text(one.top) for one in tokens],
        "text_offset": [one.offset for one in tokens],
    }


def _by_text(top: tuple[tuple[str, float], ...]) -> dict[str, float]:
    """Of two tokens with one text the likelier one stays."""
    found: dict[str, float] = {}
    for token, logprob in top:
        found.setdefault(token, logprob)
    return found


def _chat_token(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _choice(content: Mapping[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "logprobs": None, "finish_reason": finish_reason, **content}


def _envelope(request: CompletionRequest | ChatRequest, request_id: str, *, chunk: bool) -> dict[str, Any]:
    chat = isinstance(request, ChatRequest)
    kind = ("chat.completion.chunk" if chunk else "chat.completion") if chat else "text_completion"
    return {"id": f"{'chatcmpl' if chat else 'cmpl'}-{request_id}", "object": kind, "created": int(time.time()), "model": request.model}
