"""A run's devices as a mesh, and where each array of its state and its batches lies. The only place that knows devices by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from model.architecture import ModelConfig
from model.batch import Batch, HostBatch
from model.batches import stages
from model.config import LoaderConfig
from model.leaf import Leaf, Leaves
from model.mesh_config import MeshConfig
from model.parameters import declare
from model.shards import BATCH_AXES, PARAMETER_AXIS, WHOLE, Shards
from model.state import TrainState

AXES = ("replica", "data", "expert", "model")  # slowest network first
TENSOR_AXIS = "model"


@dataclass(frozen=True)
class Layout:
    """Where things lie. Build it with `laid_out`, or take `one_device()`.

    Attributes:
        mesh: always all four axes; those of size 1 cost nothing.
        leaves: the model's, which say along which axis each of them is split.
    """

    mesh: Mesh
    shards: Shards
    leaves: Leaves

    @property
    def is_alone(self) -> bool:
        """Whether there is one device, and so nothing to split."""
        return self.mesh.size == 1

    @property
    def mapped_axes(self) -> frozenset[str]:
        """Axes over which a step says itself what each device does. The compiler spreads matrices over the model axis, if there is one."""
        return frozenset(BATCH_AXES if self.mesh.shape[TENSOR_AXIS] > 1 else AXES)

    @property
    def everywhere(self) -> NamedSharding:
        """Each device has it all."""
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def of_batch(self) -> NamedSharding:
        """Rows are split over replica x data x expert."""
        return NamedSharding(self.mesh, PartitionSpec(BATCH_AXES))

    def mapped_specs(self) -> Any:
        """How each parameter is split inside a map over `mapped_axes`."""
        return jax.tree.map(
            lambda leaf: PartitionSpec(*(name if name in self.mapped_axes else None for name in leaf.sharding)), self.leaves
        )

    def whole_matrices(self, leaf: Leaf, array: Array) -> Array:
        """The same array with no matrix of it split: the stack is spread over the data axis where it divides, else each device has all.

        For work on whole matrices, which would otherwise exchange parts with every product. It never leaves a replica.
        """
        names: list[Any] = [name if axis not in (leaf.matrix_axes or ()) else None for axis, name in enumerate(leaf.sharding)]
        parts = self.mesh.shape[PARAMETER_AXIS]
        for axis, size in enumerate(leaf.shape):
            held = 1 if names[axis] is None else self.mesh.shape[names[axis]]
            if axis not in (leaf.matrix_axes or ()) and size % (held * parts) == 0:
                names[axis] = PARAMETER_AXIS if names[axis] is None else (names[axis], PARAMETER_AXIS)
                break
        placed: Array = jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, PartitionSpec(*names)))
        return placed

    def of_state(self, shapes: TrainState) -> Any:
        """The sharding of every array of a train state, given their shapes.

        What an optimizer keeps for each parameter lies as that parameter does. It is found by its structure: a dict with the keys of
        the parameters. An axis that it has collapsed to size 1 is not split.
        """

        def one(node: Any) -> Any:
            if not _has_structure_of(self.leaves, node):
                return self.everywhere
            return jax.tree.map(lambda leaf, found: self._like(leaf, found), self.leaves, node)

        parameters, optimizer = (
            jax.tree.map(one, tree, is_leaf=lambda node: _has_structure_of(self.leaves, node))
            for tree in (shapes.parameters, shapes.optimizer)
        )
        bias: Any = self.everywhere
        return TrainState(parameters, optimizer, bias)

    def _like(self, leaf: Leaf, found: Any) -> Any:
        """A parameter's sharding for what is kept for it; nothing for what is masked out."""
        if not hasattr(found, "shape"):
            return found
        names = (name if kept == size else None for name, kept, size in zip(leaf.sharding, found.shape, leaf.shape, strict=True))
        return NamedSharding(self.mesh, PartitionSpec(*names))

    def batch(self, sequences: int, read: Callable[[slice], HostBatch]) -> Batch[Array]:
        """A batch over all devices, of which this process reads the rows that its own devices hold."""
        sharding = self.of_batch
        held = [rows[0].indices(sequences) for rows in sharding.addressable_devices_indices_map((sequences, 1)).values() if rows]
        first, last = min(start for start, _, _ in held), max(stop for _, stop, _ in held)
        mine = read(slice(first, last))

        def placed(array: Any) -> Array:
            def rows(index: tuple[slice, ...] | None) -> Any:
                start, stop, _ = (index or (slice(None),))[0].indices(sequences)
                return array[start - first : stop - first]

            return jax.make_array_from_callback((sequences, *array.shape[1:]), sharding, rows)

        return Batch(*(placed(array) for array in mine))

    def shaped(self, shapes: TrainState) -> TrainState:
        """Shapes with the place of each array, as `pieces.assembled` and `placed` take them."""
        if self.is_alone:
            where: Any = jax.tree.map(lambda _: SingleDeviceSharding(self.mesh.devices.flat[0]), shapes)
        else:
            where = self.of_state(shapes)
        shaped: TrainState = jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), shapes, where)
        return shaped


def laid_out(config: MeshConfig, model: ModelConfig, loader: LoaderConfig) -> Layout:
    """The devices of all processes of this run as its mesh.

    Raises:
        ValueError: the mesh doesn't fit the devices, the model or the batch; names the field. Nothing was compiled for the run yet.
    """
    settled = config.on(jax.device_count())
    settled.check(model, (sequences for _, sequences in stages(loader)), loader.sequence_tokens)
    leaves = declare(model)
    for leaf in jax.tree.leaves(leaves):
        check_leaf(leaf, settled)
    sizes = tuple(getattr(settled, axis) for axis in AXES)
    mesh = Mesh(np.array(jax.devices()).reshape(sizes), AXES)
    exchange: Literal["padded", "ragged"] = "padded"
    if settled.expert > 1:
        from model.exchange_choice import settled_exchange  # compiles a probe, which only this needs

        exchange = settled_exchange(settled.expert_exchange, mesh)
    return Layout(mesh, Shards(settled.replica, sizes[1], settled.expert, exchange), leaves)


def one_device(model: ModelConfig) -> Layout:
    """Nothing is split: for whoever computes a step by hand."""
    return Layout(Mesh(np.array(jax.local_devices()[:1]).reshape(1, 1, 1, 1), AXES), WHOLE, declare(model))


def check_leaf(leaf: Leaf, mesh: MeshConfig) -> None:
    """Refuse a parameter that can't be split over a mesh whose data axis is settled, by name."""
    for size, name in zip(leaf.shape, leaf.sharding, strict=True):
        if name is not None and size % getattr(mesh, name):
            raise ValueError(
                f"mesh.{name} = {getattr(mesh, name)} doesn't divide {size}, an axis of {leaf.name} {list(leaf.shape)} that is split over "
                "it; choose a divisor, and give the other devices to mesh.replica"
            )


def _has_structure_of(leaves: Leaves, node: Any) -> bool:
    return isinstance(node, dict) and node.keys() == leaves.keys()
