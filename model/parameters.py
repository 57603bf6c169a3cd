"""The parameters of a model, declared once: shape, matrix axes, optimizer group, start and sharding of every leaf."""

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from model.config import ModelConfig

Params = dict[str, Any]
"""Nested dict of float32 arrays, as `declare` lays it out."""

Leaves = Mapping[str, Any]
"""Nested mapping of `Leaf`, in the structure of `Params`."""

TRUNCATION_SIGMAS = 3.0
UNIT_DEVIATION_TRUNCATED = 0.98658  # standard deviation of a unit normal cut at +-3 sigma


@dataclass(frozen=True)
class Leaf:
    """One array of the model. Everything that treats leaves differently reads it here, never from a name or a rank.

    Attributes:
        matrix_axes: (input axis, output axis) of the matrix in this array; all other axes stack matrices. None: no matrix.
        group: which optimizer moves it.
        start: distribution at initialisation; normal is truncated at 3 sigma and has deviation `deviation`.
        role: what it counts as: routed expert matrices are active for experts_per_token of experts.
        sharding: mesh axis of every array axis; None: replicated along it.
    """

    name: str
    shape: tuple[int, ...]
    matrix_axes: tuple[int, int] | None
    group: Literal["muon", "adam"]
    start: Literal["normal", "zeros", "ones"]
    deviation: float
    role: Literal["embedding", "head", "trunk", "routed_expert"]
    sharding: tuple[str | None, ...]

    def __post_init__(self) -> None:
        if self.group == "muon" and self.matrix_axes is None:
            raise ValueError(f"{self.name}: Muon orthogonalises matrices; declare matrix_axes or choose the adam group")
        if self.group == "muon" and self.start != "normal":
            raise ValueError(f"{self.name}: a matrix that starts at {self.start} has no direction to turn; choose the adam group")
        if len(self.sharding) != len(self.shape):
            raise ValueError(f"{self.name}: sharding {self.sharding} doesn't name all axes of shape {self.shape}")

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class ParameterCount:
    """Numbers of parameters. `active` leaves out embedding and head, and counts experts_per_token of the routed experts."""

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
    """Declare every leaf of a model. Layer arrays are stacked: their first axis is the layer."""
    deviation = config.init_scale / math.sqrt(config.width)
    layers = config.layers

    def matrix(
        name: str,
        stack: tuple[int, ...],
        rows: int,
        columns: int,
        sharding: tuple[str | None, ...],
        role: Literal["trunk", "routed_expert"] = "trunk",
    ) -> Leaf:
        axes = (len(stack), len(stack) + 1)
        return Leaf(name, (*stack, rows, columns), axes, "muon", "normal", deviation, role, sharding)

    def gain(name: str, stack: tuple[int, ...]) -> Leaf:
        return Leaf(name, (*stack, config.width), None, "adam", "ones", 0.0, "trunk", (None,) * (len(stack) + 1))

    def norm(name: str, stack: tuple[int, ...] = ()) -> dict[str, Leaf]:
        rank, free = config.norm_gate_rank, (None,) * len(stack)
        declared = {"gain": gain(f"{name}/gain", stack)}
        if rank:
            declared["gate_down"] = matrix(f"{name}/gate_down", stack, config.width, rank, (*free, "data", None))
            declared["gate_up"] = matrix(f"{name}/gate_up", stack, rank, config.width, (*free, None, "data"))
        return declared

    def vocabulary(name: Literal["embedding", "head"], shape: tuple[int, int], sharding: tuple[str | None, str | None]) -> Leaf:
        return Leaf(name, shape, (0, 1), "adam", "normal", deviation, name, sharding)

    stack = (layers,)
    inputs, outputs = (None, "data", "model"), (None, "model", "data")
    query_width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
    attention = {
        "norm": norm("layers/attention/norm", stack),
        "query": matrix("layers/attention/query", stack, config.width, query_width, inputs),
        "key": matrix("layers/attention/key", stack, config.width, kv_width, inputs),
        "value": matrix("layers/attention/value", stack, config.width, kv_width, inputs),
        "output": matrix("layers/attention/output", stack, query_width, config.width, outputs),
    }
    if config.attention_gate:
        shape = (layers, config.width, config.heads)
        attention["gate"] = Leaf("layers/attention/gate", shape, (1, 2), "adam", "zeros", 0.0, "trunk", (None, "data", None))

    experts, hidden = (layers, config.experts), config.expert_width
    bank_in, bank_out = (None, "expert", "data", "model"), (None, "expert", "model", "data")
    moe: dict[str, Any] = {
        "norm": norm("layers/moe/norm", stack),
        "router": Leaf(
            "layers/moe/router", (layers, config.width, config.experts), (1, 2), "adam", "normal", deviation, "trunk", (None, "data", None)
        ),
        "expert_gate": matrix("layers/moe/expert_gate", experts, config.width, hidden, bank_in, "routed_expert"),
        "expert_up": matrix("layers/moe/expert_up", experts, config.width, hidden, bank_in, "routed_expert"),
        "expert_down": matrix("layers/moe/expert_down", experts, hidden, config.width, bank_out, "routed_expert"),
    }
    if shared := config.shared_expert_width:
        moe["shared_gate"] = matrix("layers/moe/shared_gate", stack, config.width, shared, inputs)
        moe["shared_up"] = matrix("layers/moe/shared_up", stack, config.width, shared, inputs)
        moe["shared_down"] = matrix("layers/moe/shared_down", stack, shared, config.width, outputs)

    return {
        "embedding": vocabulary("embedding", (config.vocab_size, config.width), ("model", "data")),
        "embedding_norm": norm("embedding_norm"),
        "layers": {"attention": attention, "moe": moe},
        "final_norm": norm("final_norm"),
        "head": vocabulary("head", (config.width, config.vocab_size), ("data", "model")),
    }


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
    sizes = {"embedding": 0, "head": 0, "trunk": 0, "routed_expert": 0}
    for leaf in jax.tree.leaves(declare(config)):
        sizes[leaf.role] += leaf.size
    return ParameterCount(
        total=sum(sizes.values()),
        active=sizes["trunk"] + sizes["routed_expert"] * config.experts_per_token // config.experts,
        **sizes,
    )


def _draw(key: Array, leaf: Leaf) -> Array:
    if leaf.start == "zeros":
        return jnp.zeros(leaf.shape, jnp.float32)
    if leaf.start == "ones":
        return jnp.ones(leaf.shape, jnp.float32)
    unit = jax.random.truncated_normal(key, -TRUNCATION_SIGMAS, TRUNCATION_SIGMAS, leaf.shape, jnp.float32)
    return unit * (leaf.deviation / UNIT_DEVIATION_TRUNCATED)
