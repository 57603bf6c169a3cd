"""One MoE layer by hand: rows, leaves and a bias drawn at unit scale, so that routing is decided."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from model.architecture import ModelConfig
from model.experts import Bank
from model.moe import moe
from tests.model.learner import variant

WIDTH, HIDDEN = 12, 10


def narrow(**changes: Any) -> ModelConfig:
    """The tiny model with this layer's shapes."""
    return variant(**{"width": WIDTH, "expert_width": HIDDEN, **changes})


def bank_of(experts: int, width: int = WIDTH) -> Bank:
    keys = jax.random.split(jax.random.key(3), 3)
    gate, up = (jax.random.normal(key, (experts, width, HIDDEN)) for key in keys[:2])
    return Bank(gate, up, jax.random.normal(keys[2], (experts, HIDDEN, width)))


def layer_of(config: ModelConfig, rows: int = 40) -> tuple[Array, dict[str, Array], Array]:
    """Rows [rows, width], the leaves of `layers/moe` for one layer, and a router bias."""
    keys = iter(jax.random.split(jax.random.key(9), 8))
    bank = bank_of(config.experts, config.expert_input_width)._asdict()
    weights = {f"expert_{name}": array for name, array in bank.items()}
    weights["router"] = jax.random.normal(next(keys), (WIDTH, config.experts))
    if config.shared_expert_width:
        inward = (config.shared_experts, WIDTH, config.shared_expert_width)
        shapes = {"gate": inward, "up": inward, "down": (inward[0], inward[2], inward[1])}
        weights |= {f"shared_{name}": jax.random.normal(next(keys), shape) for name, shape in shapes.items()}
    return jax.random.normal(next(keys), (rows, WIDTH)), weights, jax.random.normal(next(keys), (config.experts,))


def run_layer(config: ModelConfig, is_token: Array | None = None) -> Any:
    """The compiled layer (x, weights, bias) -> (y, stats)."""

    def run(x: Array, weights: dict[str, Array], bias: Array) -> Any:
        return moe(x, weights, bias, config, jnp.ones(x.shape[0], bool) if is_token is None else is_token)

    return jax.jit(run)


def choices(kind: str, tokens: int, experts: int, chosen: int) -> Array:
    """[tokens, chosen] distinct experts per token."""
    rng = np.random.default_rng(5)
    if kind == "one hot spot":
        return jnp.tile(jnp.arange(chosen), (tokens, 1))
    skew = rng.gumbel(size=(tokens, experts)) - (np.arange(experts) if kind == "skewed" else 0)
    return jnp.asarray(np.argsort(-skew, axis=1)[:, :chosen].astype(np.int32))
