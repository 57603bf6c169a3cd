"""What the mathematics of a step must know where it is mapped over devices: how to add up, and how to gather what is split.

Inside such a map each device has some rows of the batch and a part of most parameters. On one device nothing is split and all of
this is the identity: `WHOLE`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax
from jax import Array

from model.leaf import Leaf, Leaves

Axes = tuple[str, ...]
"""Mapped axes whose devices together have a whole; none where it is not split."""

BATCH_AXES: Axes = ("replica", "data", "expert")  # a batch is split over all three, in this order
PARAMETER_AXIS = "data"  # parameters are split over it and gathered where they are used
EXPERT_AXIS = "expert"  # banks of experts are split over it and stay where they are


@dataclass(frozen=True)
class Shards:
    """The devices that a step is mapped over.

    Attributes:
        replicas, parts, experts: devices along the replica, data and expert axis.
        exchange: how tokens travel along the expert axis.
    """

    replicas: int = 1
    parts: int = 1
    experts: int = 1
    exchange: Literal["padded", "ragged"] = "padded"

    @property
    def count(self) -> int:
        """Devices that the batch is split over."""
        return self.replicas * self.parts * self.experts

    @property
    def axes(self) -> Axes:
        """Mapped axes that the batch is split over."""
        return BATCH_AXES if self.count > 1 else ()

    def gathered(self, leaves: Leaves | Leaf, arrays: Any, *, stack_axes: int = 0) -> Any:
        """Arrays as their leaves declare them, each put together from its parts along the data axis; banks stay split by expert.

        Args:
            stack_axes: leading axes of the declared shapes that the arrays have no longer.

        Going backward, each device gets the sum of all devices' gradients of its part.
        """
        if self.parts == 1:
            return arrays
        return jax.tree.map(lambda leaf, array: _gathered(array, leaf.sharding[stack_axes:]), leaves, arrays)

    def summed_gradients(self, leaves: Leaves, gradients: Any) -> Any:
        """Gradients of each device's own loss, added up over the axes that a leaf is not split over; `gathered` adds over the others."""
        if self.count == 1:
            return gradients
        return jax.tree.map(lambda leaf, g: total(g, tuple(axis for axis in BATCH_AXES if axis not in leaf.sharding)), leaves, gradients)


WHOLE = Shards()


def total(x: Array, axes: Axes) -> Array:
    """Sum over all shards."""
    return jax.lax.psum(x, axes) if axes else x


def lowest(x: Array, axes: Axes) -> Array:
    """Minimum over all shards."""
    return jax.lax.pmin(x, axes) if axes else x


def highest(x: Array, axes: Axes) -> Array:
    """Maximum over all shards."""
    return jax.lax.pmax(x, axes) if axes else x


def _gathered(array: Array, sharding: tuple[str | None, ...]) -> Array:
    for axis, name in enumerate(sharding):
        if name == PARAMETER_AXIS:
            array = jax.lax.all_gather(array, PARAMETER_AXIS, axis=axis, tiled=True)
    return array
