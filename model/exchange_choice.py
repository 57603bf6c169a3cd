"""Which way rows travel between devices that hold experts: the ragged collective where a platform has it and it proves right."""

import functools
import logging
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from model.exchange import exchange, routes
from model.mesh_config import ExpertExchange
from model.shards import EXPERT_AXIS

WITHOUT_RAGGED = ("cpu",)  # XLA says UNIMPLEMENTED there
SAMPLE_ROWS, SAMPLE_WIDTH = 24, 8

_log = logging.getLogger(__name__)


def settled_exchange(asked: ExpertExchange, mesh: Mesh) -> Literal["padded", "ragged"]:
    """The exchange that is used on a mesh; the decision is logged.

    Raises:
        ValueError: the ragged one is asked for by name and does not work here.
    """
    problem = None if asked == "padded" else _problem(mesh)
    if asked == "ragged" and problem is not None:
        raise ValueError(f"mesh.expert_exchange = 'ragged': it {problem} here; choose padded, or probe to let the platform decide")
    found: Literal["padded", "ragged"] = "padded" if asked == "padded" or problem is not None else "ragged"
    _log.info("experts exchange tokens %s on %s%s", found, mesh.devices.flat[0].device_kind, f": ragged {problem}" if problem else "")
    return found


@functools.lru_cache(maxsize=8)
def _problem(mesh: Mesh) -> str | None:
    """Why the ragged exchange can't be used, or None: it must agree with the padded one, there and back, forward and backward."""
    platform = mesh.devices.flat[0].platform
    if platform in WITHOUT_RAGGED:
        return f"is not implemented on {platform.upper()}s"
    try:
        differs = np.asarray(jax.jit(functools.partial(_difference, mesh))())
    except Exception as error:  # whatever a compiler or a driver says: it is not usable here
        return f"fails ({type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0][:120]})"
    return None if float(differs) == 0 else "differs from the padded one"


def _difference(mesh: Mesh) -> Array:
    """Largest difference between both ways: of a sample's outcome and of its gradient. Rows are only moved, so it must be none."""
    devices = mesh.shape[EXPERT_AXIS]
    most = SAMPLE_ROWS // devices + 1

    def on_one(_: Array) -> Array:
        here = jax.lax.axis_index(EXPERT_AXIS)
        sizes = (jnp.arange(devices)[:, None] * 3 + jnp.arange(devices)[None] * 5 + 7) % most
        there, back = routes(sizes.astype(jnp.int32), here)
        rows = jnp.sin(jnp.arange(SAMPLE_ROWS * SAMPLE_WIDTH, dtype=jnp.float32) + 1000 * here).reshape(SAMPLE_ROWS, SAMPLE_WIDTH)

        def moved(how: Literal["padded", "ragged"], rows: Array) -> tuple[Array, Array]:
            arrived = exchange(rows, devices * most, there, EXPERT_AXIS, how, most=most)
            returned = exchange(arrived * arrived, SAMPLE_ROWS, back, EXPERT_AXIS, how, most=most)
            return jnp.sum(returned * rows), arrived

        ours, theirs = (jax.value_and_grad(functools.partial(moved, how), has_aux=True)(rows) for how in ("ragged", "padded"))
        differs = [jnp.max(jnp.abs(a - b)) for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)]
        largest: Array = jax.lax.pmax(jnp.max(jnp.stack(differs)), mesh.axis_names)
        return largest

    whole = PartitionSpec()
    mapped: Array = jax.shard_map(on_one, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)(jnp.zeros(()))
    return mapped
