"""One step, or several, of the tiny model on many meshes of eight devices, printed as JSON. Run in a process of its own: a JAX
process has one number of devices for its life.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.model.meshes
"""

import hashlib
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from model.architecture import ModelConfig
from model.arrays import encode
from model.batch import Batch
from model.config import LoaderConfig, OptimizerConfig
from model.exchange import exchange, routes
from model.layout import AXES, Layout, laid_out
from model.mesh_config import MeshConfig
from model.run import Run, resolve
from model.state import to_arrays
from model.step import Step, make_step, mean_gradient, start_state
from tests.model.apart import experts_apart, sent_bytes, uneven_loss
from tests.model.cells import tiny_config
from tests.model.layers import WIDTH
from tests.model.learner import CHEAP, bias, packed, variant, weights
from tests.model.lives import MODEL

ROWS, TOKENS = 8, 16
STEPS = 10
LOADER = LoaderConfig(batch_sequences=ROWS, sequence_tokens=TOKENS)

EVERYTHING = {
    "experts": 8,
    "latent_width": 16,
    "norm_gate_rank": 8,
    "attention_gate": True,
    "exclusive_attention": True,
    "convolution_taps": 2,
    "router_quantile": "histogram",
    "kernels": CHEAP,
}
"""Every kind of leaf there is, eight experts for eight devices."""


def cases() -> dict[str, tuple[ModelConfig, MeshConfig]]:
    """What is compared with one device: every kind of leaf, every kind of axis, either way of multiplying with experts."""
    limited = MODEL.model_dump() | {"capacity_factor": 0.75, "capacity_shards": 8, "kernels": CHEAP | {"moe_backend": "blocked"}}
    return {
        "everything on replica 2, data 2, expert 2": (variant(**EVERYTHING), MeshConfig(replica=2, expert=2)),
        "everything on data 2, expert 2, model 2": (variant(**EVERYTHING), MeshConfig(expert=2, model=2)),
        "capacity on expert 8": (variant(**limited), MeshConfig(expert=8)),
    }


def spread(batch: Batch[Any], layout: Layout) -> Batch[Any]:
    return layout.batch(ROWS, lambda rows: Batch(*(np.asarray(array)[rows] for array in batch)))


def gradients(model: ModelConfig, mesh: MeshConfig | None) -> dict[str, Any]:
    """Loss, gradient and router statistics of one batch, on the host."""
    params, router_bias, batch = weights(model), bias(model), packed(model, rows=ROWS, tokens=TOKENS)
    layout = None if mesh is None else laid_out(mesh, model, LOADER)
    if layout is not None:
        params = jax.tree.map(
            lambda array, spec: jax.device_put(array, NamedSharding(layout.mesh, spec)),
            params,
            jax.tree.map(lambda leaf: PartitionSpec(*leaf.sharding), layout.leaves),
        )
        batch = spread(batch, layout)
        router_bias = jax.device_put(router_bias, layout.everywhere)
    gradient, sums = jax.jit(lambda p, b, x: mean_gradient(p, b, model, x, layout))(params, router_bias, batch)
    return jax.device_get({"gradient": gradient, "router": sums.router._asdict(), "loss": sums.objective_sum / sums.weight_sum})


def difference(ours: Any, theirs: Any) -> float:
    """Largest difference, of each array's largest entry."""
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return max(float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-6)) for a, b in pairs)


def compare(model: ModelConfig, mesh: MeshConfig, alone: dict[str, Any]) -> dict[str, float]:
    spread = gradients(model, mesh)
    return {
        "loss": abs(float(spread["loss"] - alone["loss"])),
        "gradient": difference(spread["gradient"], alone["gradient"]),
        "load": difference(spread["router"]["load"], alone["router"]["load"]),
        "next_bias": difference(spread["router"]["next_bias"], alone["router"]["next_bias"]),
        "dropped": float(np.sum(spread["router"]["dropped"])),
        "dropped by one device": float(np.sum(alone["router"]["dropped"])),
    }


def run_of(**changes: Any) -> Run:
    config = tiny_config(
        model=MODEL,
        loader=LOADER,
        optimizer=OptimizerConfig(matrix_rule="muon_sphere", head_rule="adam_sphere"),
        held_out={"sequence_tokens": 16},
        **changes,
    )
    return resolve(config)


def losses(run: Run, step: Step, layout: Layout | None) -> tuple[list[float], float, str]:
    """Losses of ten steps, the largest radius drift on the way, and what the last state hashes to."""
    state, seen, drift = start_state(run, layout), [], 0.0
    for number in range(STEPS):
        batch = packed(run.model, seed=number, rows=ROWS, tokens=TOKENS)
        state, measures = step(state, batch if layout is None else spread(batch, layout))
        seen.append(float(measures.loss))
        drift = max(drift, float(measures.radius_drift))
    return seen, drift, hashlib.sha256(encode(to_arrays(state))).hexdigest()


def exchanges() -> dict[str, float]:
    """Rows of random routes between eight devices: against a plain loop, there and back, and transposed."""
    devices, most, width, length = 8, 5, 3, 40
    rng = np.random.default_rng(1)
    sizes = rng.integers(0, most + 1, (devices, devices)).astype(np.int32)
    # Small whole numbers, so that no sum rounds: a transpose is one exactly or not at all.
    rows = rng.integers(-8, 9, (devices, length, width)).astype(np.float32)
    weigh = rng.integers(-8, 9, (devices, devices * most, width)).astype(np.float32)
    mesh = Mesh(np.array(jax.devices()).reshape(1, 1, 8, 1), AXES)
    split = PartitionSpec("expert")

    def on_one(rows: Any, weigh: Any) -> Any:
        there, back = routes(jnp.asarray(sizes), jax.lax.axis_index("expert"))

        def arrived(rows: Any) -> Any:
            return exchange(rows[0], devices * most, there, "expert", "padded", most=most)[None]

        came = arrived(rows)
        home = exchange(came[0], length, back, "expert", "padded", most=most)[None]
        pulled = jax.vjp(arrived, rows)[1](weigh)[0]
        return came, home, pulled

    mapped = jax.shard_map(on_one, mesh=mesh, in_specs=(split, split), out_specs=split, check_vma=False)
    came, home, pulled = jax.device_get(jax.jit(mapped)(rows, weigh))
    expected = np.zeros((devices, devices * most, width), np.float32)
    for receiver in range(devices):
        blocks = []
        for sender in range(devices):
            first = sizes[sender, :receiver].sum()
            blocks.append(rows[sender, first : first + sizes[sender, receiver]])
        stacked = np.concatenate(blocks)
        expected[receiver, : len(stacked)] = stacked
    sent = [int(sizes[sender].sum()) for sender in range(devices)]
    return {
        "there": float(np.max(np.abs(came - expected))),
        "back": max(float(np.max(np.abs(home[d, : sent[d]] - rows[d, : sent[d]]))) for d in range(devices)),
        "transpose": abs(float(np.vdot(came.astype(np.float64), weigh) - np.vdot(rows.astype(np.float64), pulled))),
    }


def main() -> None:
    assert len(jax.devices()) == 8
    report: dict[str, Any] = {"gradients": {}, "exchange": exchanges(), "experts": experts_apart(), "uneven": uneven_loss()}
    report["sent_bytes"] = {"full": sent_bytes(None), "half": sent_bytes(WIDTH // 2)}
    alone: dict[ModelConfig, dict[str, Any]] = {}
    for name, (model, mesh) in cases().items():
        if model not in alone:
            alone[model] = gradients(model, None)
        report["gradients"][name] = compare(model, mesh, alone[model])
    run = run_of()
    layout = laid_out(MeshConfig(), run.model, LOADER)
    step = make_step(run, layout)
    on_one, _, _ = losses(run, make_step(run), None)
    first, drift, state = losses(run, step, layout)
    again, _, state_again = losses(run, step, layout)
    report["losses"] = {
        "difference": max(abs(a - b) for a, b in zip(first, on_one, strict=True)),
        "drift": drift,
        "equal again": (first, state) == (again, state_again),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
