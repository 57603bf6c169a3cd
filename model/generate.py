"""Sampling from a model."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import ModelConfig
from model.batch import PADDING_SEGMENT
from model.parameters import Params, head_of
from model.transformer import forward

LENGTH_STEP_TOKENS = 64  # buffers are rounded up to this, so prompts of many lengths share one compiled loop


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
    """Continue a prompt.

    Every new token runs the training forward over the whole buffer again: no cache that could disagree with training, at
    quadratic cost. The whole loop is one compiled program.

    Args:
        prompt_ids: at least one token.
        temperature: 0 takes the likeliest token.
        seed: with equal arguments gives equal tokens on one kind of device.
        end_id: the token that ends a document.

    Returns:
        New token ids, up to and without `end_id`.

    Raises:
        ValueError: the prompt is empty, or temperature is negative.
    """
    if not prompt_ids:
        raise ValueError("the prompt is empty; begin with end_id to sample a document from its start")
    if temperature < 0:
        raise ValueError(f"temperature = {temperature} is negative; 0 takes the likeliest token")
    prompt, wanted = len(prompt_ids), len(prompt_ids) + max_new_tokens
    room = -(-wanted // LENGTH_STEP_TOKENS) * LENGTH_STEP_TOKENS
    buffer = jnp.full(room, end_id, jnp.int32).at[:prompt].set(jnp.asarray(prompt_ids, jnp.int32))
    limits = jnp.asarray([prompt, wanted, end_id], jnp.int32)
    filled, stop = _continue(params, router_bias, config, buffer, limits, jnp.float32(temperature), jax.random.key(seed))
    return [int(token) for token in filled[prompt : int(stop)]]


@functools.partial(jax.jit, static_argnames="config")
def _continue(
    params: Params, router_bias: Array, config: ModelConfig, buffer: Array, limits: Array, temperature: Array, key: Array
) -> tuple[Array, Array]:
    """Fill buffer [room] from limits[0] to limits[1]; returns it and where the new tokens end."""
    start, wanted, end_id = limits

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        _, length, ended = state
        return (length < wanted) & ~ended

    def extend(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        buffer, length, _ = state
        segment_ids = jnp.where(jnp.arange(buffer.size) < length, 0, PADDING_SEGMENT)
        hidden, _ = forward(params, router_bias, config, buffer[None], segment_ids[None])
        logits = hidden[0, length - 1].astype(jnp.float32) @ head_of(params)
        token = _draw(logits, temperature, jax.random.fold_in(key, length))
        ended = token == end_id
        return buffer.at[length].set(token), jnp.where(ended, length, length + 1), ended

    buffer, stop, _ = jax.lax.while_loop(unfinished, extend, (buffer, start, jnp.bool_(False)))
    return buffer, stop


def _draw(logits: Array, temperature: Array, key: Array) -> Array:
    likeliest = jnp.argmax(logits)
    drawn = jax.random.categorical(key, logits / jnp.maximum(temperature, 1e-6))
    return jnp.where(temperature > 0, drawn, likeliest).astype(jnp.int32)
