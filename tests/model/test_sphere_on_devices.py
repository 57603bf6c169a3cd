"""Steps on a sphere with matrices spread over eight devices: the same norms, the same step."""

import os
import subprocess
import sys

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from model.leaf import Leaf
from model.sphere import radius_drift, step_on_sphere

assert len(jax.devices()) == 8
leaves = {"experts": Leaf("experts", (8, 16, 8), (1, 2), "matrix", "normal", 0.1, "routed_expert", (None, None, None))}
params, directions = ({"experts": jax.random.normal(jax.random.key(seed), (8, 16, 8))} for seed in (0, 1))
transform = step_on_sphere(leaves, lambda count: 0.1)
alone, _ = jax.jit(transform.update)(directions, transform.init(params), params)
mesh = Mesh(np.array(jax.devices()).reshape(2, 2, 2), ("expert", "data", "model"))
for spec in (("expert", "data", "model"), (None, ("data", "model"), "expert"), (("expert", "data", "model"), None, None)):
    where = NamedSharding(mesh, PartitionSpec(*spec))
    spread, turned = (jax.tree.map(lambda a: jax.device_put(a, where), tree) for tree in (params, directions))
    step, state = jax.jit(transform.update)(turned, jax.jit(transform.init)(spread), spread)
    moved = optax.apply_updates(spread, step)
    np.testing.assert_allclose(step["experts"], alone["experts"], atol=1e-6)
    assert float(radius_drift(state, moved, leaves)) < 1e-6
    before, after = (np.linalg.norm(np.asarray(tree["experts"], np.float64), axis=(1, 2)) for tree in (params, moved))
    np.testing.assert_allclose(after, before, rtol=1e-6)
print("equal")
"""


def test_norms_stay_constant_however_matrices_are_spread_over_devices() -> None:
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False, timeout=250)
    assert done.stdout.strip() == "equal", done.stderr
