"""Our generator as an engine of `infra.serving`: many callers, each waiting for its own answer, and one thread that runs the slots."""

import queue
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from infra.serving.openai_api import Answer, RequestDeclined, TokenLogprob
from model.load import Release
from model.serving.chat import STOP, prompt_of
from model.serving.slots import Drawn, free_slots, join, leave, step, width_for
from model.serving.text import Text

DEFAULT_MAX_TOKENS = 256
PATIENCE_S = 0.2  # between two looks whether anybody still waits for an answer whose first token is far


@dataclass(frozen=True)
class _Token:
    """One drawn token of a text, with the likeliest ones at its place."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class _StepError(RuntimeError):
    """The step that was to continue this text failed."""


@dataclass
class _Job:
    """A text on its way. `news` ends with None when no token follows, or with what went wrong."""

    prompt: NDArray[np.int32]
    max_tokens: int
    seed: int
    temperature: float
    top_p: float
    news: "queue.SimpleQueue[_Token | _StepError | None]" = field(default_factory=queue.SimpleQueue)
    made: int = 0
    is_over: bool = False


class ModelEngine:
    """A model that answers requests side by side.

    Args:
        context_tokens: longest text, prompt included.
        end_id: the token that ends a document; a prompt's first one where the prompt is empty.
        slots: texts at a time. Each costs a share of the cache, whatever its length.
    """

    def __init__(self, release: Release, tokenizer: Tokenizer, *, context_tokens: int, end_id: int, slots: int) -> None:
        self._release, self._tokenizer = release, tokenizer
        self._context_tokens, self._end_id, self._slots = context_tokens, end_id, slots
        self._joining: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="slots", daemon=True)
        self._thread.start()

    @property
    def slots(self) -> int:
        return self._slots

    def close(self) -> None:
        """End the thread; texts on their way are left where they are."""
        self._joining.put(None)
        self._thread.join()

    def generate(self, body: Mapping[str, Any], say: Callable[[Sequence[str]], None]) -> Answer:
        """Answer one request; see `infra.serving.worker.Engine`.

        Raises:
            RequestDeclined: prompt and answer do not fit the context, or a token id is none of this model's.
        """
        is_chat = "messages" in body
        prompt = self._prompt(body)
        max_tokens = self._room_for(prompt, body.get("max_tokens"))
        stop = (*body.get("stop", ()), *((STOP,) if is_chat else ()))
        job = _Job(
            np.asarray(prompt, np.int32), max_tokens, int(body.get("seed", 0)) % 2**32, float(body["temperature"]), float(body["top_p"])
        )
        text = Text(self._tokenizer, stop, lead=" " if is_chat else "")
        listed: list[TokenLogprob] | None = None if body.get("listed") is None else []
        self._joining.put(job)
        try:
            drawn = self._follow(job, text, say, listed, body.get("listed") or 0)
        finally:
            job.is_over = True
        rest = text.end()
        say([rest] if rest else [])
        return Answer(
            text=text.text,
            finish_reason="stop" if text.is_stopped or drawn < max_tokens else "length",
            prompt_tokens=len(prompt),
            completion_tokens=drawn,
            logprobs=None if listed is None else tuple(one for one in listed if one.offset < max(1, len(text.text))),
        )

    def _follow(
        self, job: _Job, text: Text, say: Callable[[Sequence[str]], None], listed: list[TokenLogprob] | None, alternatives: int
    ) -> int:
        """Turn tokens into text as they come; how many there were."""
        drawn = 0
        while True:
            pieces: list[str] = []
            for token in _next(job.news):
                if isinstance(token, _StepError):
                    raise token
                if token is None:
                    say(pieces)
                    return drawn
                drawn += 1
                if listed is not None:
                    listed.append(self._listed(token, text.offset, alternatives))
                if piece := text.add(token.id):
                    pieces.append(piece)
                if text.is_stopped:
                    say(pieces)
                    return drawn
            say(pieces)

    def _listed(self, token: _Token, offset: int, alternatives: int) -> TokenLogprob:
        top = tuple((self._spelling(id_), logprob) for id_, logprob in token.top[:alternatives])
        return TokenLogprob(token=self._spelling(token.id), offset=offset, logprob=token.logprob, top=top)

    def _spelling(self, token: int) -> str:
        return str(self._tokenizer.decode([token], skip_special_tokens=False))

    def _prompt(self, body: Mapping[str, Any]) -> list[int]:
        asked = prompt_of(body["messages"]) if "messages" in body else body["prompt"]
        if isinstance(asked, str):
            return self._tokenizer.encode(asked, add_special_tokens=False).ids or [self._end_id]
        vocabulary = self._release.config.vocab_size
        if unknown := [id_ for id_ in asked if not 0 <= id_ < vocabulary]:
            raise RequestDeclined(f"token id {unknown[0]} is none of this model's {vocabulary}", "prompt")
        return list(asked) or [self._end_id]

    def _room_for(self, prompt: Sequence[int], asked: int | None) -> int:
        """New tokens at most."""
        room = self._context_tokens - len(prompt)
        if room < 1 or (asked or 1) > room:
            wanted = f"{len(prompt)} of the prompt" + (f" and {asked} asked for" if asked else "")
            raise RequestDeclined(
                f"this model's context is {self._context_tokens} tokens and the request needs more: {wanted}; shorten it",
                "max_tokens" if room >= 1 else "prompt",
            )
        return asked or min(DEFAULT_MAX_TOKENS, room)

    def _run(self) -> None:
        """The slots' own thread."""
        while True:
            try:
                if self._continue_texts():
                    return
            except Exception:  # out of memory, a lost device: the texts at hand fail, and the next ones get new slots
                traceback.print_exc(file=sys.stderr)

    def _continue_texts(self) -> bool:
        """Continue texts until a step fails or the engine is closed; whether it is closed."""
        release = self._release
        state = free_slots(release.config, self._slots, self._context_tokens)
        jobs: dict[int, _Job] = {}
        try:
            while True:
                while len(jobs) < self._slots and (not jobs or not self._joining.empty()):
                    job = self._joining.get()
                    if job is None:
                        return True
                    if job.is_over:
                        continue
                    slot = min(set(range(self._slots)) - jobs.keys())
                    jobs[slot] = job
                    tokens, positions = _filled(job.prompt, width_for(len(job.prompt), self._context_tokens), self._end_id)
                    state = join(
                        release.params,
                        release.router_bias,
                        release.config,
                        self._context_tokens,
                        state,
                        jnp.int32(slot),
                        jnp.asarray(tokens),
                        jnp.asarray(positions),
                        jnp.uint32(job.seed),
                        jnp.float32(job.temperature),
                        jnp.float32(job.top_p),
                    )
                state, drawn = step(release.params, release.router_bias, release.config, state)
                for slot in self._deliver(jobs, drawn):
                    jobs.pop(slot).news.put(None)
                    state = state._replace(positions=leave(state.positions, jnp.int32(slot)))
        except Exception as error:
            for job in jobs.values():
                job.news.put(_StepError(f"{type(error).__name__}: {error}"))
            raise

    def _deliver(self, jobs: Mapping[int, _Job], drawn: Drawn) -> list[int]:
        """Give each text its token; the slots whose texts are over."""
        tokens, logprobs, top_tokens, top_logprobs = (array.tolist() for array in jax.device_get(drawn))
        over = []
        for slot, job in jobs.items():
            if job.is_over or tokens[slot] == self._end_id:
                over.append(slot)
                continue
            job.news.put(_Token(tokens[slot], logprobs[slot], tuple(zip(top_tokens[slot], top_logprobs[slot], strict=True))))
            job.made += 1
            if job.made == job.max_tokens:
                over.append(slot)
        return over


def _next(news: "queue.SimpleQueue[_Token | _StepError | None]") -> list[_Token | _StepError | None]:
    """What came since the last look; nothing if nothing came for a while."""
    found: list[_Token | _StepError | None] = []
    try:
        found.append(news.get(timeout=PATIENCE_S))
        while True:
            found.append(news.get_nowait())
    except queue.Empty:
        return found


def _filled(prompt: NDArray[np.int32], width: int, filling: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """A prompt at the end of `width` tokens, and their positions, negative before it."""
    tokens = np.full(width, filling, np.int32)
    tokens[width - len(prompt) :] = prompt
    return tokens, np.arange(width, dtype=np.int32) - (width - len(prompt))
