"""The proxy: OpenAI's API for clients on one side, leases for workers on the other, the broker between them.

Everything runs on one event loop, so there are no thread pools or connection pools whose defaults cap a fleet, and
the broker needs no lock.
"""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from infra.serving import openai_api
from infra.serving.broker import Broker
from infra.serving.limits import ServingLimits
from infra.serving.openai_api import Answer, ChatRequest, CompletionRequest
from infra.serving.request import Diverged, QueueFull, Request

DISCONNECT_POLL_S = 0.5


class Proxy:
    """One broker and the people who wait for it.

    Args:
        models: ids that clients may ask for.
    """

    def __init__(self, models: Sequence[str], limits: ServingLimits) -> None:
        self.models = tuple(models)
        self.limits = limits
        self._is_closing = False
        self._waiting = asyncio.Event()
        self._changed: dict[str, asyncio.Event] = {}
        self.broker = Broker(limits, on_change=self._tell, on_waiting=self._waiting.set)

    def application(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route("/v1/models", self._models),
            Route("/v1/completions", self._accept(CompletionRequest), methods=["POST"]),
            Route("/v1/chat/completions", self._accept(ChatRequest), methods=["POST"]),
            Route("/broker/state", self._state),
            *(Route(f"/broker/{name}", verb, methods=["POST"]) for name, verb in self._worker_verbs().items()),
        ]
        return Starlette(routes=routes, lifespan=self._ticking)

    def close(self) -> None:
        """Take nothing new, and turn away what no worker has begun. Workers may finish the rest."""
        self._is_closing = True
        for event in self._changed.values():
            event.set()

    def _tell(self, request: Request) -> None:
        if (event := self._changed.get(request.id)) is not None:
            event.set()

    @contextlib.asynccontextmanager
    async def _ticking(self, application: Starlette) -> AsyncIterator[None]:
        """Notice expired leases though nobody asks for anything."""

        async def tick() -> None:
            while True:
                self.broker.tick()
                await asyncio.sleep(self.limits.poll_s / 2)

        task = asyncio.create_task(tick())
        try:
            yield
        finally:
            task.cancel()

    async def _models(self, http: HttpRequest) -> Response:
        found = [{"id": name, "object": "model", "created": 0, "owned_by": "seaway"} for name in self.models]
        return JSONResponse({"object": "list", "data": found})

    def _accept(self, kind: type[CompletionRequest] | type[ChatRequest]) -> Callable[[HttpRequest], Awaitable[Response]]:
        async def handle(http: HttpRequest) -> Response:
            try:
                asked = kind.model_validate_json(await http.body())
            except ValidationError as found:
                return JSONResponse(openai_api.invalid(found), 400)
            if asked.model not in self.models:
                what = f"model {asked.model!r} is not served here; there is {', '.join(self.models)}"
                return JSONResponse(openai_api.error(what, param="model", code="model_not_found"), 404)
            if self._is_closing:
                return JSONResponse(*_closing())
            try:
                request = self.broker.submit(_body_of(asked))
            except QueueFull as full:
                told = openai_api.error(str(full), "rate_limit_error", code="queue_full")
                return JSONResponse(told, 429, headers={"Retry-After": str(full.retry_after_s)})
            self._changed[request.id] = asyncio.Event()
            if asked.stream:
                return StreamingResponse(self._stream(asked, request), media_type="text/event-stream")
            return await self._whole(http, asked, request)

        return handle

    async def _whole(self, http: HttpRequest, asked: CompletionRequest | ChatRequest, request: Request) -> Response:
        deadline_s = asyncio.get_running_loop().time() + self.limits.request_s
        try:
            while request.settled is None:
                left_s = deadline_s - asyncio.get_running_loop().time()
                if left_s <= 0 or self._turns_away(request) or await http.is_disconnected():
                    break
                await self._change(request, min(left_s, DISCONNECT_POLL_S))
            if request.settled == "answered":
                return JSONResponse(openai_api.whole(asked, request.id, Answer.model_validate(request.answer)))
            told, status = self._why(request)
            return JSONResponse(told, status)
        finally:
            self._forget(request)

    async def _stream(self, asked: CompletionRequest | ChatRequest, request: Request) -> AsyncIterator[str]:
        """Server-sent events. When the client goes, the generator is closed and the request dropped."""
        deadline_s, told = asyncio.get_running_loop().time() + self.limits.request_s, 0
        try:
            while True:
                while told < len(request.said):
                    yield _event(openai_api.piece(asked, request.id, request.said[told], None))
                    told += 1
                left_s = deadline_s - asyncio.get_running_loop().time()
                if request.settled is not None or left_s <= 0 or self._turns_away(request):
                    break
                await self._change(request, min(left_s, DISCONNECT_POLL_S))
            if request.settled == "answered":
                answer = Answer.model_validate(request.answer)
                if rest := answer.text.removeprefix("".join(request.said)):
                    yield _event(openai_api.piece(asked, request.id, rest, None))
                yield _event(openai_api.piece(asked, request.id, "", answer.finish_reason))
                if asked.include_usage:
                    yield _event(openai_api.cost(asked, request.id, answer))
            else:
                yield _event(self._why(request)[0])
            yield "data: [DONE]\n\n"
        finally:
            self._forget(request)

    async def _change(self, request: Request, timeout_s: float) -> None:
        event = self._changed[request.id]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), timeout_s)
        event.clear()

    def _forget(self, request: Request) -> None:
        self.broker.abandon(request)
        self._changed.pop(request.id, None)

    def _turns_away(self, request: Request) -> bool:
        return self._is_closing and request.lease is None and request.settled is None

    def _why(self, request: Request) -> tuple[dict[str, Any], int]:
        if request.settled == "declined":
            return dict(request.answer or {}), 400
        if request.settled == "dead_letter":
            what = f"{len(request.failures)} workers failed with this request: {'; '.join(request.failures)}"
            return openai_api.error(what, "server_error", code="dead_letter"), 502
        if self._turns_away(request):
            return _closing()
        what = f"no answer within {self.limits.request_s:g} s (request_s)"
        return openai_api.error(what, "server_error", code="timeout"), 504

    async def _state(self, http: HttpRequest) -> Response:
        broker = self.broker
        return JSONResponse({"waiting": broker.waiting, "leased": broker.leased, **vars(broker.counters)})

    def _worker_verbs(self) -> dict[str, Callable[[HttpRequest], Awaitable[Response]]]:
        broker = self.broker

        def simply(act: Callable[[dict[str, Any]], bool | None]) -> Callable[[HttpRequest], Awaitable[Response]]:
            async def handle(http: HttpRequest) -> Response:
                try:
                    return JSONResponse({"accepted": act(await http.json())})
                except (KeyError, json.JSONDecodeError, ValidationError) as found:
                    return JSONResponse({"error": f"not understood: {found!r}"}, 400)
                except Diverged as diverged:
                    return JSONResponse({"accepted": False, "error": str(diverged)})

            return handle

        return {
            "lease": self._lease,
            "hear": self._hear,
            "say": simply(lambda told: broker.say(told["lease"], told["position"], told["pieces"])),
            "answer": simply(lambda told: broker.answer(told["lease"], Answer.model_validate(told["answer"]).model_dump())),
            "decline": simply(lambda told: broker.decline(told["lease"], openai_api.error(told["why"], param=told["param"]))),
            "fail": simply(lambda told: broker.fail(told["lease"], told["why"])),
            "leave": simply(lambda told: broker.leave(told["worker"])),
        }

    async def _hear(self, http: HttpRequest) -> Response:
        """A worker lives; tell it which of its requests nobody waits for any more."""
        told = await http.json()
        return JSONResponse({"gone": self.broker.hear(str(told["worker"]), told["leases"])})

    async def _lease(self, http: HttpRequest) -> Response:
        """Give a request out, at once or as soon as one comes within `poll_s`."""
        worker = str((await http.json())["worker"])
        deadline_s = asyncio.get_running_loop().time() + self.limits.poll_s
        while True:
            self._waiting.clear()
            if await http.is_disconnected():
                return Response(status_code=499)  # a lease for nobody would have to expire first
            lease = self.broker.lease(worker)
            left_s = deadline_s - asyncio.get_running_loop().time()
            if lease is not None:
                self._waiting.set()  # there may be more, and others who wait for it
                return JSONResponse({"lease": lease.id, "body": lease.body})
            if left_s <= 0:
                return JSONResponse({"lease": None})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._waiting.wait(), left_s)


def _closing() -> tuple[dict[str, Any], int]:
    return openai_api.error("this server is shutting down; ask another, or ask again later", "server_error", code="shutting_down"), 503


def _body_of(asked: CompletionRequest | ChatRequest) -> dict[str, Any]:
    """What a worker gets: with a seed in any case, so that a second attempt repeats the first."""
    seed = secrets.randbits(31) if asked.seed is None else asked.seed
    return {**asked.model_dump(mode="json"), "seed": seed, "listed": asked.listed}


def _event(told: dict[str, Any]) -> str:
    return f"data: {json.dumps(told)}\n\n"
