"""Reference loader of a released model: from a folder to logits, bit for bit those of the trained checkpoint."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import KernelConfig, ModelConfig
from model.arrays import decode
from model.export import CONFIG, ROUTER_BIAS, WEIGHTS, model_config
from model.parameters import Params, declare, head_of
from model.state import from_arrays
from model.transformer import forward


@dataclass(frozen=True)
class Release:
    """A model in memory, ready for `model.transformer.forward` and `model.generate.sample`."""

    params: Params
    router_bias: Array
    config: ModelConfig


def load_release(directory: str | Path, *, kernels: KernelConfig | None = None) -> Release:
    """Read a released folder.

    Args:
        kernels: how to compute on this machine; None as in training, which gives the same bits on the same kind of device.

    Raises:
        FileNotFoundError: no release lies there.
        ArraysMismatchError: the weights are not those that the config declares; nothing is filled in.
    """
    folder = Path(directory)
    config = model_config(json.loads((folder / CONFIG).read_text()))
    arrays = decode((folder / WEIGHTS).read_bytes())
    params = declare(config)
    expected = {
        "parameters": jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32), params),
        ROUTER_BIAS: jax.ShapeDtypeStruct((config.layers, config.experts), jnp.float32),
    }
    named = {name if name == ROUTER_BIAS else f"parameters/{name}": array for name, array in arrays.items()}
    loaded = from_arrays(str(folder / WEIGHTS), named, expected)
    return Release(loaded["parameters"], loaded[ROUTER_BIAS], config.model_copy(update={"kernels": kernels}) if kernels else config)


def logits(release: Release, tokens: Array, segment_ids: Array | None = None) -> Array:
    """Scores of every next token.

    Args:
        tokens: [batch, tokens] int32.
        segment_ids: [batch, tokens] int32, one id per document; None where a row is one document.

    Returns:
        [batch, tokens, vocab] float32.
    """
    segments = jnp.zeros_like(tokens) if segment_ids is None else segment_ids
    found: Array = next_token_logits(release.params, release.router_bias, release.config, tokens, segments)
    return found


@functools.partial(jax.jit, static_argnames="config")
def next_token_logits(params: Params, router_bias: Array, config: ModelConfig, tokens: Array, segment_ids: Array) -> Array:
    """All logits of a batch, [batch, tokens, vocab] float32: for tests and short texts, 4 bytes times the vocabulary a token."""
    hidden, _ = forward(params, router_bias, config, tokens, segment_ids)
    return jnp.matmul(hidden, head_of(params).astype(hidden.dtype), preferred_element_type=jnp.float32)
