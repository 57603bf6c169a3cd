"""What a model declares about one of its arrays."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Group = Literal["matrix", "head", "adam"]
"""Who moves an array: the rule for matrices, the rule for the output head, or Adam whatever the others do."""

Start = Literal["normal", "zeros", "ones", "identity"]
"""Distribution at initialisation. Normal is truncated at 3 sigma; identity is 1 on the first of its second-last axis, else 0."""

Role = Literal["embedding", "head", "trunk", "routed_expert"]

Leaves = Mapping[str, Any]
"""Nested mapping of `Leaf`, in the structure of the parameters."""


@dataclass(frozen=True)
class Leaf:
    """One array of the model. Everything that treats leaves differently reads it here, never from a name or a rank.

    Attributes:
        matrix_axes: (input axis, output axis) of the matrix in this array; all other axes stack matrices. None: no matrix.
        group: which optimizer moves it.
        deviation: of a normal start.
        role: what it counts as: of routed expert matrices a token multiplies with experts_per_token of experts.
        sharding: mesh axis of every array axis; None: replicated along it.
    """

    name: str
    shape: tuple[int, ...]
    matrix_axes: tuple[int, int] | None
    group: Group
    start: Start
    deviation: float
    role: Role
    sharding: tuple[str | None, ...]

    def __post_init__(self) -> None:
        if self.group != "adam" and self.matrix_axes is None:
            raise ValueError(f"{self.name}: the {self.group} group moves matrices; declare matrix_axes or choose the adam group")
        if self.group != "adam" and self.start != "normal":
            raise ValueError(
                f"{self.name}: a matrix that starts at {self.start} has no direction to turn and no radius to keep; choose the adam group"
            )
        if len(self.sharding) != len(self.shape):
            raise ValueError(f"{self.name}: sharding {self.sharding} doesn't name all axes of shape {self.shape}")

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def stack(self) -> tuple[int, ...]:
        """Shape of the axes that stack matrices."""
        return tuple(size for axis, size in enumerate(self.shape) if axis not in (self.matrix_axes or ()))
