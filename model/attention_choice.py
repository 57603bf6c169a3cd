"""Which attention a device can do: each candidate is run on a sample and must agree with the plain one, forward and backward.

A name in a table says what a device should be able to do; only running it says that it does, with this driver, these heads and
this window. The decision is one line in the run's log and a field of each row of its metrics.
"""

import functools
import logging
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import AttentionBackend, ModelConfig
from model.attention import attend

CANDIDATES: dict[str, tuple[AttentionBackend, ...]] = {
    "gpu": ("cudnn", "library", "plain"),
    "tpu": ("splash", "library", "plain"),
    "cpu": ("triangle", "library", "plain"),  # python -m model.bench --only attention
}
SAMPLE_TOKENS = 1024  # a multiple of every kernel's blocks, and longer than one of them
TOLERANCES = {"float32": 1e-4, "bfloat16": 3e-2}  # of the largest entry; bfloat16 rounds each probability to 8 bits

_log = logging.getLogger(__name__)


class Decision(NamedTuple):
    """The back end that is used, and why: as asked, or what was found out about each candidate before it."""

    backend: AttentionBackend
    why: str


def settled(model: ModelConfig, sequence_tokens: int) -> tuple[ModelConfig, Decision]:
    """The model with a back end that this device can do, and the decision, which is logged."""
    asked = model.kernels.attention_backend
    if asked != "probe":
        decision = Decision(asked, "the config names it")
    else:
        decision = probe(model, min(sequence_tokens, SAMPLE_TOKENS), CANDIDATES.get(jax.default_backend(), ("library", "plain")))
    _log.info("attention on %s: %s; %s", jax.devices()[0].device_kind, decision.backend, decision.why)
    return with_attention(model, decision.backend), decision


@functools.lru_cache(maxsize=32)
def probe(model: ModelConfig, tokens: int, candidates: tuple[AttentionBackend, ...]) -> Decision:
    """The first candidate that works for every kind of layer of a model and agrees with the plain back end.

    Raises:
        ValueError: none does.
    """
    refused: list[str] = []
    for backend in candidates:
        problem = _problem(model, tokens, backend)
        if problem is None:
            return Decision(backend, "; ".join([*refused, f"{backend} agrees with plain on {tokens} tokens"]))
        refused.append(f"{backend} {problem}")
    raise ValueError(f"no attention back end works on {jax.devices()[0].device_kind}: {'; '.join(refused)}; name one in attention_backend")


def with_attention(model: ModelConfig, backend: AttentionBackend) -> ModelConfig:
    return model.model_copy(update={"kernels": model.kernels.model_copy(update={"attention_backend": backend})})


def _problem(model: ModelConfig, tokens: int, backend: AttentionBackend) -> str | None:
    """Why a back end can't be used, or None."""
    if backend == "plain":
        return None
    for window in dict.fromkeys(model.window(layer) for layer in range(model.layers)):
        expected = _outcome(with_attention(model, "plain"), tokens, window)
        try:
            found = jax.block_until_ready(_outcome(with_attention(model, backend), tokens, window))
        except Exception as error:  # whatever a kernel, its compiler or a driver says: it is not usable here
            return f"fails ({type(error).__name__}: {str(error).strip().splitlines()[0][:120] if str(error).strip() else 'no message'})"
        differs = max(float(jnp.max(jnp.abs(a - b)) / (jnp.max(jnp.abs(b)) + 1e-6)) for a, b in zip(found, expected, strict=True))
        if not differs <= TOLERANCES[model.kernels.compute_dtype]:
            return f"differs from plain by {differs:.2g} of the largest entry (window {window})"
    return None


def _outcome(model: ModelConfig, tokens: int, window: int | None) -> tuple[Array, ...]:
    """Attention of a sample of two documents and padding, and its three gradients, float32."""
    keys = jax.random.split(jax.random.key(0), 3)
    dtype = jnp.dtype(model.kernels.compute_dtype)
    heads = (model.heads, model.kv_heads, model.kv_heads)
    q, k, v = (jax.random.normal(key, (1, tokens, n, model.head_dim), dtype) for key, n in zip(keys, heads, strict=True))
    place = jnp.arange(tokens)
    segment_ids = jnp.where(place >= tokens - tokens // 8, -1, (place >= tokens // 3).astype(jnp.int32))[None]

    def loss(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        mixed = attend(q, k, v, segment_ids, model, window=window).astype(jnp.float32)
        return jnp.sum(jnp.sin(mixed)), mixed

    gradients, mixed = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(q, k, v)
    return mixed, *(gradient.astype(jnp.float32) for gradient in gradients)
