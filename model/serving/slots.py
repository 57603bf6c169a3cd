"""Continuous batching: a fixed number of slots, each with a text that is being continued.

A text joins a free slot and leaves it between two steps, so nobody waits for the longest answer of a batch. It is read alone
and its draws hang on its own seed and positions, so what it becomes does not hang on its neighbours.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import ModelConfig
from model.cache import UNUSED, LayerCache, empty_cache
from model.decode import read_on
from model.parameters import Params

TOP = 5  # likeliest tokens that a step tells of
STEP_BLOCK_ROWS = 8  # a step has few rows for each expert: 5.2 ms of CPU where blocks of 64 take 7.7 (demo model, 8 slots, 2 cores)
FIRST_WIDTH_TOKENS = 64  # prompts are filled up to this or a power of two times it: few widths, few compiled programs


class Slots(NamedTuple):
    """Texts that are being continued.

    Attributes:
        logits: [slots, vocab] float32 behind each text's last token.
        cache: what each layer remembers.
        positions: [slots] int32 place of the next token in its text; `UNUSED` in a free slot.
        seeds: [slots] uint32 of the draws.
        temperatures, top_ps: [slots] float32.
    """

    logits: Array
    cache: list[LayerCache]
    positions: Array
    seeds: Array
    temperatures: Array
    top_ps: Array


class Drawn(NamedTuple):
    """The next token of each slot; numbers of free slots mean nothing.

    Attributes:
        tokens: [slots] int32.
        logprobs: [slots] float32 of each, in the model's own distribution, before temperature and nucleus.
        top_tokens: [slots, TOP] int32, likeliest first.
        top_logprobs: [slots, TOP] float32.
    """

    tokens: Array
    logprobs: Array
    top_tokens: Array
    top_logprobs: Array


def free_slots(config: ModelConfig, slots: int, room_tokens: int) -> Slots:
    """Slots without texts; room_tokens is the longest text, prompt included."""
    return Slots(
        logits=jnp.zeros((slots, config.vocab_size), jnp.float32),
        cache=empty_cache(config, slots, room_tokens),
        positions=jnp.full(slots, UNUSED, jnp.int32),
        seeds=jnp.zeros(slots, jnp.uint32),
        temperatures=jnp.zeros(slots, jnp.float32),
        top_ps=jnp.ones(slots, jnp.float32),
    )


def width_for(prompt_tokens: int, room_tokens: int) -> int:
    """What a prompt is filled up to."""
    width = FIRST_WIDTH_TOKENS
    while width < prompt_tokens:
        width *= 2
    return min(width, max(room_tokens, prompt_tokens))


@functools.partial(jax.jit, static_argnames=("config", "room_tokens"), donate_argnames="slots")
def join(
    params: Params,
    router_bias: Array,
    config: ModelConfig,
    room_tokens: int,
    slots: Slots,
    slot: Array,
    tokens: Array,
    positions: Array,
    seed: Array,
    temperature: Array,
    top_p: Array,
) -> Slots:
    """Read a prompt and put it into a slot.

    Args:
        slot: scalar int32.
        tokens, positions: [width] int32, filled up at the front; positions of filling are negative.
        seed: scalar uint32.
        temperature, top_p: scalar float32.
    """
    row = empty_cache(config, 1, room_tokens)
    logits, row = read_on(params, router_bias, config, tokens[None], positions[None], row)
    cache: list[LayerCache] = jax.tree.map(lambda all_, one: all_.at[slot].set(one[0]), slots.cache, row)
    return Slots(
        logits=slots.logits.at[slot].set(logits[0]),
        cache=cache,
        positions=slots.positions.at[slot].set(positions[-1] + 1),
        seeds=slots.seeds.at[slot].set(seed),
        temperatures=slots.temperatures.at[slot].set(temperature),
        top_ps=slots.top_ps.at[slot].set(top_p),
    )


@functools.partial(jax.jit, donate_argnames="positions")
def leave(positions: Array, slot: Array) -> Array:
    """Free a slot: positions without it."""
    return positions.at[slot].set(UNUSED)


@functools.partial(jax.jit, static_argnames="config", donate_argnames="slots")
def step(params: Params, router_bias: Array, config: ModelConfig, slots: Slots) -> tuple[Slots, Drawn]:
    """Draw the next token of every slot and read it."""
    kernels = config.kernels.model_copy(update={"moe_block_rows": min(config.kernels.moe_block_rows, STEP_BLOCK_ROWS)})
    config = config.model_copy(update={"kernels": kernels})
    logprobs = jax.nn.log_softmax(slots.logits, axis=-1)
    keys = jax.vmap(jax.random.fold_in)(jax.vmap(jax.random.key)(slots.seeds), slots.positions)
    tokens = draw(slots.logits, keys, slots.temperatures, slots.top_ps)
    top_logprobs, top_tokens = jax.lax.top_k(logprobs, min(TOP, logprobs.shape[-1]))
    drawn = Drawn(tokens, jnp.take_along_axis(logprobs, tokens[:, None], axis=-1)[:, 0], top_tokens, top_logprobs)
    logits, cache = read_on(params, router_bias, config, tokens[:, None], slots.positions[:, None], slots.cache)
    after = jnp.where(slots.positions == UNUSED, UNUSED, slots.positions + 1)
    return slots._replace(logits=logits, cache=cache, positions=after), drawn


def draw(logits: Array, keys: Array, temperatures: Array, top_ps: Array) -> Array:
    """One token a row [rows] int32: the likeliest where the temperature is 0, else drawn from the nucleus.

    Args:
        logits: [rows, vocab] float32.
        keys: [rows] random keys.
        temperatures: [rows] float32.
        top_ps: [rows] float32; 1 keeps every token.

    Source: nucleus sampling, Holtzman et al. 2019 (arXiv 1904.09751).
    """
    scaled = logits / jnp.maximum(temperatures, 1e-6)[:, None]
    scaled = jax.lax.cond(jnp.any(top_ps < 1), lambda: _nucleus(scaled, top_ps), lambda: scaled)
    drawn = jax.vmap(jax.random.categorical)(keys, scaled)
    return jnp.where(temperatures > 0, drawn, jnp.argmax(logits, axis=-1)).astype(jnp.int32)


def _nucleus(logits: Array, top_ps: Array) -> Array:
    """Logits with -inf for all but the fewest likeliest tokens whose probabilities come to top_p; equal ones stay together."""
    descending = -jnp.sort(-logits, axis=-1)
    probabilities = jax.nn.softmax(descending, axis=-1)
    before = jnp.cumsum(probabilities, axis=-1) - probabilities
    least = jnp.min(jnp.where(before < top_ps[:, None], descending, jnp.inf), axis=-1, keepdims=True)
    return jnp.where((top_ps[:, None] < 1) & (logits < least), -jnp.inf, logits)
