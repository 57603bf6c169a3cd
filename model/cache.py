"""What a decoder remembers of the tokens it has read: keys and values, as many as a layer may still see, and the tails of its
short convolutions and key offsets.

A global layer keeps every token; a windowed one keeps a ring of `window` tokens, whatever the length of the text.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from model.architecture import ConvolutionSite, ModelConfig

UNUSED = -1  # position of a place of the cache that holds no token, and of padding


class KeyValues(NamedTuple):
    """Attention's memory of one layer.

    Attributes:
        keys, values: [batch, room, kv_heads, head_dim], as the softmax takes them.
        positions: [batch, room] int32 position of each, `UNUSED` where there is none.
    """

    keys: Array
    values: Array
    positions: Array


class LayerCache(NamedTuple):
    """Everything one layer remembers.

    Attributes:
        attention: keys and values.
        tails: by site, the last `convolution_taps` - 1 inputs of its convolution [batch, taps - 1, channels].
        offset: the last token's upper key half [batch, 1, kv_heads, head_dim / 2], not yet normalised; None where keys stay.
    """

    attention: KeyValues
    tails: dict[ConvolutionSite, Array]
    offset: Array | None


def empty_cache(config: ModelConfig, batch: int, room_tokens: int) -> list[LayerCache]:
    """The memory of a model that has read nothing, one entry a layer; room_tokens is the longest text, prompt included."""
    return [_empty_layer(config, layer, batch, room_tokens) for layer in range(config.layers)]


def remember(memory: KeyValues, keys: Array, values: Array, positions: Array) -> KeyValues:
    """Write tokens [batch, tokens] into a ring: a token at position p goes to place p modulo the room; padding goes nowhere."""
    room = memory.positions.shape[1]
    kept = slice(max(keys.shape[1] - room, 0), None)  # of more tokens than there is room for only the last can stay
    keys, values, positions = keys[:, kept], values[:, kept], positions[:, kept]
    places = jnp.where(positions >= 0, positions % room, room)
    rows = jnp.arange(keys.shape[0])[:, None]
    return KeyValues(
        memory.keys.at[rows, places].set(keys, mode="drop"),
        memory.values.at[rows, places].set(values, mode="drop"),
        memory.positions.at[rows, places].set(positions, mode="drop"),
    )


def cache_bytes(config: ModelConfig, batch: int, room_tokens: int) -> int:
    """Bytes of the keys and values that `empty_cache` holds."""
    rows = sum(_room(config, layer, room_tokens) for layer in range(config.layers))
    return 2 * batch * rows * config.kv_heads * config.head_dim * jnp.dtype(config.kernels.compute_dtype).itemsize


def _room(config: ModelConfig, layer: int, room_tokens: int) -> int:
    window = config.window(layer)
    return room_tokens if window is None else min(window, room_tokens)


def _empty_layer(config: ModelConfig, layer: int, batch: int, room_tokens: int) -> LayerCache:
    dtype = jnp.dtype(config.kernels.compute_dtype)
    room, kv_width = _room(config, layer, room_tokens), config.kv_heads * config.head_dim
    shape = (batch, room, config.kv_heads, config.head_dim)
    memory = KeyValues(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), jnp.full((batch, room), UNUSED, jnp.int32))
    channels: dict[ConvolutionSite, int] = {"key": kv_width, "attention": config.width, "moe": config.width}
    tails = {
        site: jnp.zeros((batch, config.convolution_taps - 1, width), dtype) for site, width in channels.items() if config.convolves(site)
    }
    offsets = config.partial_key_offset and config.is_global(layer)
    offset = jnp.zeros((batch, 1, config.kv_heads, config.head_dim // 2), dtype) if offsets else None
    return LayerCache(memory, tails, offset)
