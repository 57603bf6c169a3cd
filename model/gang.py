"""The processes of a run: how they come together, and the few things they must agree on. Alone, each of these answers at once.

Those below `is_leader` are collectives: all processes call them, in the same order.
"""

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from numpy.typing import NDArray

from infra.dispatch.rendezvous import Membership

Numbers = NDArray[np.uint32]
"""What crosses processes: JAX would cut wider integers to 32 bits."""


def join() -> None:
    """Meet the other ranks of this attempt, before JAX is asked for a device.

    Raises:
        RendezvousFailed: they did not come together.
    """
    Membership.of_environment().join(lambda address, size, rank: jax.distributed.initialize(address, size, rank))


def count() -> int:
    """Processes of this run."""
    processes: int = jax.process_count()
    return processes


def rank() -> int:
    """Which of them this one is."""
    index: int = jax.process_index()
    return index


def is_leader() -> bool:
    """Whether this is process 0, which decides, commits and publishes."""
    return jax.process_index() == 0


def leaders(numbers: Numbers) -> Numbers:
    """What process 0 says; all pass an array of one shape."""
    said: Numbers = np.asarray(multihost_utils.broadcast_one_to_all(numbers))
    return said


def everybodys(numbers: Numbers) -> Numbers:
    """[processes, ...] what each process says. Nobody hears it before everybody has spoken."""
    said: Numbers = np.asarray(multihost_utils.process_allgather(numbers[None], tiled=True))
    return said


def all_agree(holds: bool) -> bool:
    """Whether it holds for every process."""
    return bool(everybodys(np.array([holds], np.uint32)).all())


def leader_says(holds: bool) -> bool:
    """Whether it holds for process 0."""
    return bool(leaders(np.array([holds], np.uint32)).all())


def whole(array: Array) -> NDArray[np.generic]:
    """An array that lies over many devices as one on this host."""
    if array.is_fully_addressable:
        return np.asarray(jax.device_get(array))
    return np.asarray(multihost_utils.process_allgather(array, tiled=True))
