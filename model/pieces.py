"""The parts of a state's arrays that one process holds, as named host arrays; and a state put together from anybody's parts.

A part is named `parameters/head[0:16,8:16]`; an array that one device holds whole bears its name alone. So a file of parts explains
itself, and a state that was saved on one mesh is restored on any other.
"""

import re
from collections import defaultdict
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from model.array_files import Declared
from model.arrays import check_same_arrays
from model.boxes import Box, box_of, common, entries, lengths, moved, slices, within
from model.state import Tree, named_leaves

_NAME = re.compile(r"(?P<name>[^\[]+)(?:\[(?P<box>[\d:,]*)\])?")


def own_pieces(tree: Tree) -> dict[str, NDArray[Any]]:
    """Copy to the host what this process holds; of parts that several devices hold, one's. All processes' pieces are the whole tree."""
    held = {
        _key(name, box_of(shard.index, array.shape), array.shape): shard.data
        for name, array in named_leaves(tree).items()
        for shard in array.addressable_shards
        if shard.replica_id == 0
    }
    return {key: np.asarray(piece) for key, piece in jax.device_get(held).items()}


def place_of(key: str, shape: tuple[int, ...]) -> tuple[str, Box]:
    """The array that a piece of this shape belongs to, and where in it the piece lies."""
    match = _NAME.fullmatch(key)
    if match is None or match["box"] is None:
        return key, box_of(None, shape)
    ends = (one.split(":") for one in match["box"].split(",") if one)
    return match["name"], tuple((int(start), int(stop)) for start, stop in ends)


class Assembly:
    """A tree laid out as `like` is, from the pieces of however it lay before. It has memory for what this process needs, no more.

    It is shown every piece there is, and given the entries of those that it wants, in parts of any size.
    """

    def __init__(self, like: Tree) -> None:
        """Begin with nothing.

        Args:
            like: shapes with the shardings that the tree is to have.
        """
        self._like, self._leaves = like, named_leaves(like)
        self._needed = {name: _needed(leaf) for name, leaf in self._leaves.items()}
        self._shown: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self._parts: dict[str, dict[Box, NDArray[Any]]] = {name: {} for name in self._leaves}

    def wants(self, key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Whether a piece holds a part of what this process needs."""
        self._shown[key] = shape, dtype
        name, place = place_of(key, shape)
        leaf = self._leaves.get(name)
        if leaf is None or len(place) != len(leaf.shape) or dtype != leaf.dtype:
            return False  # `tree` will refuse it by name
        return self.needs(key, shape, box_of(None, shape))

    def needs(self, key: str, shape: tuple[int, ...], inside: Box) -> bool:
        """Whether a box of a wanted piece holds a part of what this process needs."""
        name, place = place_of(key, shape)
        return any(common(moved(inside, place), needed) is not None for needed in self._needed[name])

    def take(self, key: str, shape: tuple[int, ...], inside: Box, given: NDArray[Any]) -> None:
        """Copy what is needed of a box of a piece.

        Args:
            shape: of the piece.
            inside: where in the piece the entries lie.
        """
        name, place = place_of(key, shape)
        here = moved(inside, place)
        for needed in self._needed[name]:
            shared = common(here, needed)
            if shared is None:
                continue
            parts = self._parts[name]
            if needed not in parts:
                parts[needed] = np.empty(lengths(needed), given.dtype)
            parts[needed][slices(within(shared, needed))] = given[slices(within(shared, here))]

    def tree(self, where: str) -> Tree:
        """The tree, once all was given. What it was made of is let go on the way.

        Args:
            where: what was read, for the message.

        Raises:
            ArraysMismatchError: an array is missing or extra, or of another dtype or shape. Nothing is filled in.
        """
        check_pieces(where, self._shown, self._like)
        arrays = [_placed(leaf, self._parts.pop(name)) for name, leaf in self._leaves.items()]
        return jax.tree.unflatten(jax.tree.structure(self._like), arrays)


def check_pieces(where: str, pieces: Declared, like: Tree) -> None:
    """Refuse pieces that are not a tree's, or not all that this process needs of it.

    Args:
        where: what was read, for the message.

    Raises:
        ArraysMismatchError: names the first differences of each kind.
    """
    by_name: dict[str, list[tuple[Box, np.dtype[Any]]]] = defaultdict(list)
    for key, (shape, dtype) in pieces.items():
        name, place = place_of(key, shape)
        by_name[name].append((place, dtype))
    leaves = named_leaves(like)
    found = {name: _together(parts, leaves.get(name)) for name, parts in by_name.items()}
    check_same_arrays(where, found, {name: (tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in leaves.items()})


def _placed(leaf: Any, parts: dict[Box, NDArray[Any]]) -> jax.Array:
    shape = tuple(leaf.shape)

    def part(index: tuple[slice, ...] | None) -> NDArray[Any]:
        # A copy on purpose: a step donates its state, and two devices must not be given the same memory.
        return parts[box_of(index, shape)].copy() if parts else np.empty(lengths(box_of(index, shape)), leaf.dtype)

    return jax.make_array_from_callback(shape, leaf.sharding, part)


def _together(parts: list[tuple[Box, np.dtype[Any]]], leaf: Any) -> NDArray[Any]:
    """An array of the shape and dtype that the parts have together; an empty one where something needed is missing."""
    if leaf is None or len({len(box) for box, _ in parts}) > 1:
        return _stand_in((0,), parts[0][1])
    dtype = next((dtype for _, dtype in parts if dtype != leaf.dtype), np.dtype(leaf.dtype))
    extent, shape = tuple(max(stops) for stops in zip(*([stop for _, stop in box] for box, _ in parts), strict=True)), tuple(leaf.shape)
    if len(extent) != len(shape) or any(stop > size for stop, size in zip(extent, shape, strict=True)):
        return _stand_in(extent, dtype)
    for needed in _needed(leaf):
        shared = (common(box, needed) for box, _ in parts)
        if sum(entries(box) for box in shared if box is not None) != entries(needed):
            return _stand_in((0,) if extent == shape else extent, dtype)
    return _stand_in(shape, dtype)


def _stand_in(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of this shape that takes no memory."""
    return np.broadcast_to(np.empty((), dtype), shape)


def _needed(leaf: Any) -> set[Box]:
    """What this process needs of an array: all of it where nobody says how it is to lie."""
    shape = tuple(leaf.shape)
    if getattr(leaf, "sharding", None) is None:
        return {box_of(None, shape)}
    return {box_of(index, shape) for index in leaf.sharding.addressable_devices_indices_map(shape).values()}


def _key(name: str, box: Box, shape: tuple[int, ...]) -> str:
    if box == box_of(None, shape):
        return name
    return f"{name}[{','.join(f'{start}:{stop}' for start, stop in box)}]"
