"""Answers that end at a stop text: written side by side a stride at a time, and looked at between strides, so that a short answer
does not pay for the longest one allowed."""

import functools
from collections.abc import Callable, Sequence
from itertools import batched

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from model.architecture import ModelConfig
from model.cache import LayerCache, empty_cache
from model.decode import read_on
from model.eval.tasks.language_model import LanguageModel
from model.eval.tasks.likelihood import bucket_of
from model.parameters import Params

STRIDE_TOKENS = 32  # written before anybody looks; a look costs one decoding of the answers so far


def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    until: Sequence[str],
    batch_tokens: int,
    heard: Callable[[int, int], None] = lambda done, total: None,
) -> list[str]:
    """Continue prompts greedily.

    Args:
        prompts: token ids, at least one each; with `max_new_tokens` they fit into what the model reads.
        until: an answer ends before the first of each of these, in their order, and before the end of its document.
        batch_tokens: at most so many tokens, prompts and answers, are remembered at one time, and one prompt's at least.

    Returns:
        The answers, in the order of the prompts.
    """
    answers: dict[int, str] = {}
    order = sorted(range(len(prompts)), key=lambda index: (-len(prompts[index]), index))
    longest = max((len(prompt) for prompt in prompts), default=1)
    count = max(1, batch_tokens // (bucket_of(longest, model.context_tokens) + max_new_tokens))
    for group in batched(order, count):
        texts = _continued(model, [prompts[index] for index in group], max_new_tokens, until, count)
        answers.update(zip(group, texts, strict=True))
        heard(len(answers), len(prompts))
    return [answers[index] for index in range(len(prompts))]


def cut(text: str, until: Sequence[str]) -> str:
    """A text up to the first of each stop text, one after the other."""
    for stop in until:
        text = text.split(stop)[0] if stop else text
    return text


def _continued(model: LanguageModel, prompts: Sequence[Sequence[int]], max_new_tokens: int, until: Sequence[str], count: int) -> list[str]:
    width = bucket_of(max(len(prompt) for prompt in prompts), model.context_tokens)
    tokens, positions = _left_filled(prompts, width, count, model.end_id)
    room = width + -(-max_new_tokens // STRIDE_TOKENS) * STRIDE_TOKENS
    logits, cache = _read(model.params, model.router_bias, model.config, room, tokens, positions)
    written = np.zeros((count, 0), np.int32)
    texts = [""] * len(prompts)
    unfinished = set(range(len(prompts)))
    while unfinished and written.shape[1] < max_new_tokens:
        following = positions[:, -1] + 1 + written.shape[1]
        new, logits, cache = _write(model.params, model.router_bias, model.config, logits, cache, following)
        written = np.concatenate([written, np.asarray(new)], axis=1)[:, :max_new_tokens]
        for row in sorted(unfinished):
            texts[row], ended = _text(model, written[row], until)
            if ended:
                unfinished.remove(row)
    return texts


def _text(model: LanguageModel, written: NDArray[np.int32], until: Sequence[str]) -> tuple[str, bool]:
    """The answer so far, and whether it has ended."""
    ends = np.flatnonzero(written == model.end_id)
    whole = model.decode([int(token) for token in (written[: ends[0]] if len(ends) else written)])
    kept = cut(whole, until)
    return kept, bool(len(ends)) or kept != whole


def _left_filled(prompts: Sequence[Sequence[int]], width: int, count: int, end_id: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Tokens and positions [count, width]; filling stands in front and has negative positions. Rows nobody asked for read one token."""
    tokens = np.full((count, width), end_id, np.int32)
    positions = np.tile(np.arange(width, dtype=np.int32) - (width - 1), (count, 1))
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = prompt
        positions[row] = np.arange(width, dtype=np.int32) - (width - len(prompt))
    return tokens, positions


@functools.partial(jax.jit, static_argnames=("config", "room"))
def _read(
    params: Params, router_bias: Array, config: ModelConfig, room: int, tokens: Array, positions: Array
) -> tuple[Array, list[LayerCache]]:
    return read_on(params, router_bias, config, tokens, positions, empty_cache(config, tokens.shape[0], room))


@functools.partial(jax.jit, static_argnames="config")
def _write(
    params: Params, router_bias: Array, config: ModelConfig, logits: Array, cache: list[LayerCache], following: Array
) -> tuple[Array, Array, list[LayerCache]]:
    """The likeliest next tokens [sequences, STRIDE_TOKENS], and what is needed to go on behind them."""

    def step(state: tuple[Array, list[LayerCache]], offset: Array) -> tuple[tuple[Array, list[LayerCache]], Array]:
        logits, cache = state
        token = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        return read_on(params, router_bias, config, token[:, None], (following + offset)[:, None], cache), token

    (logits, cache), tokens = jax.lax.scan(step, (logits, cache), jnp.arange(STRIDE_TOKENS))
    return tokens.T, logits, cache
