"""Parts of a step on eight devices, each against an oracle on one: a layer whose experts are spread, and a loss whose tokens are."""

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from model.architecture import KernelConfig, ModelConfig
from model.cross_entropy import linear_cross_entropy
from model.layout import AXES
from model.moe import moe
from model.shards import BATCH_AXES, Shards, total
from tests.model.layers import HIDDEN, WIDTH, layer_of, narrow, run_layer
from tests.model.learner import CHEAP

ROWS, EXPERTS = 64, 8
Z_LOSS = 0.01
SPLIT, WHOLE = PartitionSpec(BATCH_AXES), PartitionSpec()


def mesh_of(experts: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:experts]).reshape(1, 1, experts, 1), AXES)


def layer(experts: int, config: ModelConfig) -> Any:
    """(x, weights, bias, weigh) -> (y, load, next bias, gradients of sum(y * weigh)), with the bank on so many devices."""
    shards = Shards(experts=experts)

    def on_one(x: Any, weights: Any, bias: Any, weigh: Any) -> Any:
        def loss(x: Any, weights: Any) -> Any:
            y, stats = moe(x, weights, bias, config, jnp.ones(x.shape[0], bool), shards=shards)
            return jnp.sum(y * weigh), (y, stats)

        (of_x, of_weights), (y, stats) = jax.grad(loss, argnums=(0, 1), has_aux=True)(x, weights)
        of_weights = {name: g if name.startswith("expert_") else total(g, shards.axes) for name, g in of_weights.items()}
        return y, stats.load, stats.next_bias, of_x, of_weights

    def specs(weights: Any) -> Any:
        return {name: PartitionSpec("expert") if name.startswith("expert_") else WHOLE for name in weights}

    def mapped(x: Any, weights: Any, bias: Any, weigh: Any) -> Any:
        inputs, outputs = (SPLIT, specs(weights), WHOLE, SPLIT), (SPLIT, WHOLE, WHOLE, SPLIT, specs(weights))
        run = jax.shard_map(on_one, mesh=mesh_of(experts), in_specs=inputs, out_specs=outputs, check_vma=False)
        return run(x, weights, bias, weigh)

    return mapped


def experts_apart() -> dict[str, dict[str, float]]:
    """By number of devices: a layer against the dense oracle on one. Outputs are of order one."""
    dense = narrow(experts=EXPERTS, shared_experts=0, shared_expert_width=0, kernels=CHEAP)
    x, weights, bias = layer_of(dense, ROWS)
    weights = {name: array / math.sqrt(HIDDEN if name == "expert_down" else WIDTH) for name, array in weights.items()}
    weigh = jax.random.normal(jax.random.key(11), x.shape)

    def oracle(x: Any, weights: Any) -> Any:
        y, stats = run_layer(dense)(x, weights, bias)
        return jnp.sum(y * weigh), (y, stats)

    (of_x, of_weights), (y, stats) = jax.device_get(jax.jit(jax.grad(oracle, argnums=(0, 1), has_aux=True))(x, weights))
    report = {}
    for devices in (1, 2, 4, 8):
        config = dense.model_copy(update={"kernels": dense.kernels.model_copy(update={"moe_backend": "blocked", "moe_block_rows": 8})})
        found = jax.device_get(jax.jit(layer(devices, config))(x, weights, bias, weigh))
        report[str(devices)] = {
            "output": float(np.max(np.abs(found[0] - y))),
            "load": float(np.max(np.abs(found[1] - stats.load))),
            "next_bias": float(np.max(np.abs(found[2] - stats.next_bias))),
            "gradient": max(_apart(found[3], of_x), *(_apart(found[4][name], of_weights[name]) for name in weights)),
        }
    return report


def _apart(ours: Any, theirs: Any) -> float:
    """Distance of two arrays, of the length of the second."""
    return float(np.linalg.norm(np.asarray(ours, np.float64) - theirs) / np.linalg.norm(np.asarray(theirs, np.float64)))


def sent_bytes(latent_width: int | None) -> int:
    """Bytes of rows that a layer over eight devices hands to each of them for its way there and back, by its own program."""
    config = narrow(experts=EXPERTS, shared_experts=0, shared_expert_width=0, latent_width=latent_width, kernels=CHEAP)
    x, weights, bias = layer_of(config, ROWS)
    if latent_width:
        maps = {"latent_down": (WIDTH, latent_width), "latent_up": (latent_width, WIDTH), "latent_gain": (latent_width,)}
        weights |= {name: jnp.ones(shape) for name, shape in maps.items()}
    program = jax.make_jaxpr(lambda *given: layer(8, config)(*given)[0])(x, weights, bias, jnp.ones(x.shape))
    sent = [operand.aval for one in _equations(program.jaxpr) if one.primitive.name == "all_to_all" for operand in one.invars]
    return sum(math.prod(aval.shape) * aval.dtype.itemsize for aval in sent if jnp.issubdtype(aval.dtype, jnp.floating))


def _equations(program: Any) -> Iterator[Any]:
    for one in program.eqns:
        yield one
        for inner in one.params.values():
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


def uneven_loss() -> dict[str, float]:
    """A mean loss over eight devices of which one has no token that counts and one a single one, against full logits in float64."""
    rng = np.random.default_rng(3)
    rows, head = rng.normal(size=(ROWS, WIDTH)).astype(np.float32), rng.normal(size=(WIDTH, 40)).astype(np.float32)
    targets, weights = rng.integers(0, 40, ROWS), rng.uniform(size=ROWS).astype(np.float32)
    weights[:8], weights[9:16] = 0, 0
    kernels = KernelConfig(compute_dtype="float32", loss_chunk_tokens=5)

    def on_one(rows: Any, head: Any, targets: Any, weights: Any) -> Any:
        def objective(rows: Any, head: Any) -> Any:
            return linear_cross_entropy(rows, head, targets, weights, Z_LOSS, kernels)[0]

        own, (of_rows, of_head) = jax.value_and_grad(objective, argnums=(0, 1))(rows, head)
        everything = functools.partial(total, axes=BATCH_AXES)
        weight = everything(jnp.sum(weights))
        return everything(own) / weight, of_rows / weight, everything(of_head) / weight

    run = jax.shard_map(on_one, mesh=mesh_of(8), in_specs=(SPLIT, WHOLE, SPLIT, SPLIT), out_specs=(WHOLE, SPLIT, WHOLE), check_vma=False)
    loss, of_rows, of_head = jax.device_get(jax.jit(run)(rows, head, jnp.asarray(targets, jnp.int32), weights))

    wide, matrix, weigh = rows.astype(np.float64), head.astype(np.float64), weights.astype(np.float64)
    logits = wide @ matrix
    partition = np.log(np.exp(logits).sum(axis=1))
    each = partition - logits[np.arange(ROWS), targets] + Z_LOSS * partition**2
    share = np.exp(logits - partition[:, None])
    pull = share * (1 + 2 * Z_LOSS * partition[:, None]) - np.eye(40)[targets]
    pull *= weigh[:, None] / weigh.sum()
    means = [np.average(each[part], weights=weigh[part]) for part in np.split(np.arange(ROWS), 8)[1:]]
    return {
        "loss": abs(float(loss - (each @ weigh) / weigh.sum())),
        "of_rows": float(np.max(np.abs(of_rows - pull @ matrix.T)) / np.max(np.abs(pull @ matrix.T))),
        "of_head": float(np.max(np.abs(of_head - wide.T @ pull)) / np.max(np.abs(wide.T @ pull))),
        "mean of means": abs(float(np.mean(means) - (each @ weigh) / weigh.sum())),
    }
