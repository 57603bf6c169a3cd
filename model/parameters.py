"""The parameters of a model, declared once: shape, matrix axes, optimizer group, start and sharding of every leaf."""

import math
import zlib
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import ConvolutionSite, ModelConfig
from model.leaf import Leaf, Role

Params = dict[str, Any]
"""Nested dict of float32 arrays, as `declare` lays it out."""

BANK = ("expert_gate", "expert_up", "expert_down")
"""Leaves of `layers/moe` whose first axis is the bank, which layers may share; that of all others is the layer."""

TRUNCATION_SIGMAS = 3.0
UNIT_DEVIATION_TRUNCATED = 0.98658  # standard deviation of a unit normal cut at +-3 sigma

Sharding = tuple[str | None, ...]


@dataclass(frozen=True)
class ParameterCount:
    """Numbers of parameters.

    `active` are those a token multiplies with, embedding and head left out: experts_per_token of the routed experts, and a
    bank that layers share once for each of them.
    """

    total: int
    active: int
    embedding: int
    head: int
    trunk: int
    routed_expert: int

    @property
    def active_with_vocabulary(self) -> int:
        """Active parameters with embedding and head: the other convention in use."""
        return self.active + self.embedding + self.head


def declare(config: ModelConfig) -> dict[str, Any]:
    """Declare every leaf of a model. Layer arrays are stacked: their first axis is the layer, or the bank (`BANK`)."""
    declared: dict[str, Any] = {
        "embedding": _vocabulary(config, "embedding", (config.vocab_size, config.width), ("model", "data")),
        "embedding_norm": _norm(config, "embedding_norm"),
        "layers": {"attention": _attention(config), "moe": _moe(config)},
        "final_norm": _norm(config, "final_norm"),
    }
    if not config.tied_head:
        declared["head"] = _vocabulary(config, "head", (config.width, config.vocab_size), ("data", "model"))
    return declared


def head_of(params: Params) -> Array:
    """The output projection [width, vocab]: the head, or the embedding where the model ties them."""
    head: Array = params["head"] if "head" in params else params["embedding"].T
    return head


def init(config: ModelConfig, seed: int) -> Params:
    """Draw the float32 parameters of a model.

    A leaf's draw depends on the seed, its name and its shape alone: declaring another leaf moves no other.
    """
    root = jax.random.key(seed)
    drawn: Params = jax.tree.map(lambda leaf: _draw(jax.random.fold_in(root, zlib.crc32(leaf.name.encode())), leaf), declare(config))
    return drawn


def init_router_bias(config: ModelConfig) -> Array:
    """The router's selection bias before any balancing: zeros [layers, experts]. Train state, no parameter: it has no gradient."""
    return jnp.zeros((config.layers, config.experts), jnp.float32)


def count(config: ModelConfig) -> ParameterCount:
    """Count the declared parameters by role."""
    sizes: dict[Role, int] = {"embedding": 0, "head": 0, "trunk": 0, "routed_expert": 0}
    for leaf in jax.tree.leaves(declare(config)):
        sizes[leaf.role] += leaf.size
    routed = sizes["routed_expert"] * config.expert_tying_layers
    return ParameterCount(
        total=sum(sizes.values()),
        active=sizes["trunk"] + routed * config.experts_per_token // config.experts,
        **sizes,
    )


def _attention(config: ModelConfig) -> dict[str, Any]:
    name, stack = "layers/attention", (config.layers,)
    inputs, outputs = (None, "data", "model"), (None, "model", "data")
    query_width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
    declared: dict[str, Any] = {
        "norm": _norm(config, f"{name}/norm", stack),
        "query": _matrix(config, f"{name}/query", stack, config.width, query_width, inputs),
        "key": _matrix(config, f"{name}/key", stack, config.width, kv_width, inputs),
        "value": _matrix(config, f"{name}/value", stack, config.width, kv_width, inputs),
        "output": _matrix(config, f"{name}/output", stack, query_width, config.width, outputs),
    }
    if config.attention_gate:
        shape = (config.layers, config.width, config.heads)
        declared["gate"] = Leaf(f"{name}/gate", shape, (1, 2), "adam", "zeros", 0.0, "trunk", (None, "data", None))
    sites: dict[ConvolutionSite, int] = {"key": kv_width, "attention": config.width}
    return declared | _convolutions(config, name, sites)


def _moe(config: ModelConfig) -> dict[str, Any]:
    name, stack, latent = "layers/moe", (config.layers,), config.latent_width
    inner, hidden, bank = config.expert_input_width, config.expert_width, (config.banks, config.experts)
    bank_in, bank_out = (None, "expert", "data", "model"), (None, "expert", "model", "data")
    declared: dict[str, Any] = {
        "norm": _norm(config, f"{name}/norm", stack),
        "router": _router(config, f"{name}/router"),
        "expert_gate": _matrix(config, f"{name}/expert_gate", bank, inner, hidden, bank_in, "routed_expert"),
        "expert_up": _matrix(config, f"{name}/expert_up", bank, inner, hidden, bank_in, "routed_expert"),
        "expert_down": _matrix(config, f"{name}/expert_down", bank, hidden, inner, bank_out, "routed_expert"),
    }
    if latent:
        declared["latent_down"] = _matrix(config, f"{name}/latent_down", stack, config.width, latent, (None, "data", "model"))
        declared["latent_up"] = _matrix(config, f"{name}/latent_up", stack, latent, config.width, (None, "model", "data"))
        if config.latent_norm:
            declared["latent_gain"] = _gain(f"{name}/latent_gain", (*stack, latent))
    if width := config.shared_expert_width:
        shared, inputs, outputs = (config.layers, config.shared_experts), (None, None, "data", "model"), (None, None, "model", "data")
        declared["shared_gate"] = _matrix(config, f"{name}/shared_gate", shared, config.width, width, inputs)
        declared["shared_up"] = _matrix(config, f"{name}/shared_up", shared, config.width, width, inputs)
        declared["shared_down"] = _matrix(config, f"{name}/shared_down", shared, width, config.width, outputs)
    return declared | _convolutions(config, name, {"moe": config.width})


def _router(config: ModelConfig, name: str) -> Leaf:
    shape = (config.layers, config.width, config.experts)
    return Leaf(name, shape, (1, 2), "adam", "normal", _deviation(config), "trunk", (None, "data", None))


def _convolutions(config: ModelConfig, branch: str, sites: dict[ConvolutionSite, int]) -> dict[str, Leaf]:
    """Taps [layers, taps, channels] of the short convolutions in a branch; tap j weighs the token j back."""
    return {
        f"{site}_taps": Leaf(
            f"{branch}/{site}_taps",
            (config.layers, config.convolution_taps, channels),
            None,
            "adam",
            "identity",
            0.0,
            "trunk",
            (None, None, None),
        )
        for site, channels in sites.items()
        if config.convolves(site)
    }


def _norm(config: ModelConfig, name: str, stack: tuple[int, ...] = ()) -> dict[str, Leaf]:
    rank, free = config.norm_gate_rank, (None,) * len(stack)
    declared = {"gain": _gain(f"{name}/gain", (*stack, config.width))}
    if rank:
        declared["gate_down"] = _matrix(config, f"{name}/gate_down", stack, config.width, rank, (*free, "data", None))
        declared["gate_up"] = _matrix(config, f"{name}/gate_up", stack, rank, config.width, (*free, None, "data"))
    return declared


def _gain(name: str, shape: tuple[int, ...]) -> Leaf:
    return Leaf(name, shape, None, "adam", "ones", 0.0, "trunk", (None,) * len(shape))


def _matrix(
    config: ModelConfig, name: str, stack: tuple[int, ...], rows: int, columns: int, sharding: Sharding, role: Role = "trunk"
) -> Leaf:
    axes = (len(stack), len(stack) + 1)
    return Leaf(name, (*stack, rows, columns), axes, "matrix", "normal", _deviation(config), role, sharding)


def _vocabulary(config: ModelConfig, name: Literal["embedding", "head"], shape: tuple[int, int], sharding: Sharding) -> Leaf:
    group: Literal["head", "adam"] = "head" if name == "head" else "adam"  # an embedding on a sphere rule diverged at 1.2x its rate
    return Leaf(name, shape, (0, 1), group, "normal", _deviation(config), name, sharding)


def _deviation(config: ModelConfig) -> float:
    return config.init_scale / math.sqrt(config.width)


def _draw(key: Array, leaf: Leaf) -> Array:
    match leaf.start:
        case "zeros":
            return jnp.zeros(leaf.shape, jnp.float32)
        case "ones":
            return jnp.ones(leaf.shape, jnp.float32)
        case "identity":
            return jnp.zeros(leaf.shape, jnp.float32).at[..., 0, :].set(1.0)
        case "normal":
            unit = jax.random.truncated_normal(key, -TRUNCATION_SIGMAS, TRUNCATION_SIGMAS, leaf.shape, jnp.float32)
            return unit * (leaf.deviation / UNIT_DEVIATION_TRUNCATED)
