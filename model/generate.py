"""Sampling from a model: prompts are read once, then every new token costs one token."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from model.architecture import ModelConfig
from model.cache import empty_cache
from model.decode import read_on
from model.parameters import Params

LENGTH_STEP_TOKENS = 64  # lengths are rounded up to this, so prompts of many lengths share one compiled program


def sample(
    params: Params,
    router_bias: Array,
    config: ModelConfig,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    *,
    temperature: float,
    seed: int,
    end_id: int,
) -> list[int]:
    """Continue one prompt; see `sample_batch`."""
    prompts, seeds = [prompt_ids], [seed]
    return sample_batch(params, router_bias, config, prompts, max_new_tokens, temperature=temperature, seeds=seeds, end_id=end_id)[0]


def sample_batch(
    params: Params,
    router_bias: Array,
    config: ModelConfig,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    temperature: float,
    seeds: Sequence[int],
    end_id: int,
) -> list[list[int]]:
    """Continue prompts side by side. Reading and the whole loop are one compiled program.

    Args:
        prompts: token ids, at least one each; their lengths may differ.
        temperature: 0 takes the likeliest token.
        seeds: of each prompt's draws; with equal arguments gives equal tokens on one kind of device.
        end_id: the token that ends a document.

    Returns:
        New token ids of each prompt, up to and without `end_id`.

    Raises:
        ValueError: a prompt is empty, temperature is negative, or there are not as many seeds as prompts.
    """
    if not all(prompts):
        raise ValueError("the prompt is empty; begin with end_id to sample a document from its start")
    if temperature < 0:
        raise ValueError(f"temperature = {temperature} is negative; 0 takes the likeliest token")
    if len(seeds) != len(prompts):
        raise ValueError(f"{len(seeds)} seeds for {len(prompts)} prompts; give each prompt its own")
    lengths = np.array([len(prompt) for prompt in prompts])
    width = _rounded(int(lengths.max()))
    tokens = np.full((len(prompts), width), end_id, np.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = prompt
    positions = np.arange(width, dtype=np.int32) - (width - lengths[:, None]).astype(np.int32)
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    limits = jnp.asarray([max_new_tokens, end_id], jnp.int32)
    new_room = _rounded(max_new_tokens)
    drawn, counts = _continue(
        params, router_bias, config, new_room, jnp.asarray(tokens), jnp.asarray(positions), limits, jnp.float32(temperature), keys
    )
    return [[int(token) for token in row[:count]] for row, count in zip(np.asarray(drawn), np.asarray(counts), strict=True)]


@functools.partial(jax.jit, static_argnames=("config", "new_room"))
def _continue(
    params: Params,
    router_bias: Array,
    config: ModelConfig,
    new_room: int,
    tokens: Array,
    positions: Array,
    limits: Array,
    temperature: Array,
    keys: Array,
) -> tuple[Array, Array]:
    """Read prompts [batch, tokens] and draw up to limits[0] tokens; returns them [batch, new_room] and how many count."""
    (batch, width), (wanted, end_id) = tokens.shape, limits
    cache = empty_cache(config, batch, width + new_room)
    logits, cache = read_on(params, router_bias, config, tokens, positions, cache)
    state = (jnp.zeros((batch, new_room), jnp.int32), jnp.zeros(batch, jnp.int32), jnp.zeros(batch, bool), jnp.int32(0), logits, cache)

    def unfinished(state: Any) -> Array:
        _, _, ended, made, _, _ = state
        goes_on: Array = (made < wanted) & ~jnp.all(ended)
        return goes_on

    def extend(state: Any) -> Any:
        drawn, counts, ended, made, logits, cache = state
        position = positions[:, -1] + 1 + made
        token = jax.vmap(_draw, in_axes=(0, None, 0))(logits, temperature, jax.vmap(jax.random.fold_in)(keys, position))
        ended = ended | (token == end_id)
        counts = counts + ~ended
        logits, cache = read_on(params, router_bias, config, token[:, None], position[:, None], cache)
        return drawn.at[:, made].set(token), counts, ended, made + 1, logits, cache

    drawn, counts, *_ = jax.lax.while_loop(unfinished, extend, state)
    return drawn, counts


def _rounded(tokens: int) -> int:
    return max(-(-tokens // LENGTH_STEP_TOKENS), 1) * LENGTH_STEP_TOKENS


def _draw(logits: Array, temperature: Array, key: Array) -> Array:
    likeliest = jnp.argmax(logits)
    drawn = jax.random.categorical(key, logits / jnp.maximum(temperature, 1e-6))
    return jnp.where(temperature > 0, drawn, likeliest).astype(jnp.int32)
