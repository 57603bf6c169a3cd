"""The parts of a state's arrays that one process holds, as named host arrays; and a state put together from anybody's parts.

A part is named `parameters/head[0:16,8:16]`; an array that one device holds whole bears its name alone. So a file of parts explains
itself, and a state that was saved on one mesh is restored on any other.
"""

import functools
import math
import re
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from model.arrays import Arrays, check_same_arrays
from model.state import Tree, named_leaves

Box = tuple[tuple[int, int], ...]
"""Start and stop along every axis."""

Parts = list[tuple[Box | None, NDArray[Any]]]
"""Pieces of one array; None is all of it."""

_NAME = re.compile(r"(?P<name>[^\[]+)(?:\[(?P<box>[\d:,]*)\])?")


def own_pieces(tree: Tree) -> dict[str, NDArray[Any]]:
    """Copy to the host what this process holds; of parts that several devices hold, one's. All processes' pieces are the whole tree."""
    held = {
        _key(name, _box(shard.index, array.shape), array.shape): shard.data
        for name, array in named_leaves(tree).items()
        for shard in array.addressable_shards
        if shard.replica_id == 0
    }
    return {key: np.asarray(piece) for key, piece in jax.device_get(held).items()}


def overlaps(keys: Iterable[str], like: Tree) -> bool:
    """Whether any of these pieces holds a part of what this process needs.

    Args:
        like: shapes with the shardings that the tree is to have.
    """
    needed = {name: _boxes(leaf) for name, leaf in named_leaves(like).items()}
    for key in keys:
        name, box = _parsed(key)
        boxes = needed.get(name)
        if boxes is None or box is None or any(len(box) != len(wanted) or _common(box, wanted) is not None for wanted in boxes):
            return True  # what nobody knows is needed, too: to be refused by name
    return False


def assembled(where: str, pieces: Arrays, like: Tree) -> Tree:
    """A tree laid out as `like` is, from pieces of however it lay before.

    Args:
        where: what was read, for the message.
        pieces: all that overlap with what this process needs.

    Raises:
        ArraysMismatchError: an array is missing or extra, or of another dtype or shape. Nothing is filled in.
    """
    by_name, wanted = _checked(where, pieces, like), named_leaves(like)
    arrays = [
        jax.make_array_from_callback(tuple(leaf.shape), leaf.sharding, functools.partial(_filled, leaf, by_name[name]))
        for name, leaf in wanted.items()
    ]
    return jax.tree.unflatten(jax.tree.structure(like), arrays)


def whole_arrays(where: str, pieces: Arrays, like: Tree) -> dict[str, NDArray[Any]]:
    """The whole arrays of a tree on this host, by name, from all pieces of them; raises as `assembled` does."""
    by_name = _checked(where, pieces, like)
    return {name: _filled(leaf, by_name[name], None) for name, leaf in named_leaves(like).items()}


def _checked(where: str, pieces: Arrays, like: Tree) -> dict[str, Parts]:
    by_name: dict[str, Parts] = {}
    for key, piece in pieces.items():
        name, box = _parsed(key)
        by_name.setdefault(name, []).append((box, piece))
    wanted = named_leaves(like)
    found = {name: _stand_in(parts, wanted.get(name)) for name, parts in by_name.items()}
    check_same_arrays(where, found, {name: (tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in wanted.items()})
    return by_name


def _filled(leaf: Any, parts: Parts, index: tuple[slice, ...] | None) -> NDArray[Any]:
    """A part of an array, copied: a step donates its state, and a donated buffer must not be the reader's memory."""
    shape = tuple(leaf.shape)
    wanted = _box(index, shape)
    out = np.empty([stop - start for start, stop in wanted], leaf.dtype)
    for box, piece in parts:
        here = _box(None, shape) if box is None else box
        common = _common(here, wanted)
        if common is not None:
            out[_inside(common, wanted)] = piece[_inside(common, here)]
    return out


def _stand_in(parts: Parts, leaf: Any) -> NDArray[Any]:
    """An array of the shape that the parts have together, as far as they were read; an empty one where something needed is missing."""
    whole, first = parts[0]
    if whole is None or leaf is None:
        return first
    boxes = [box for box, _ in parts if box is not None]
    extent = tuple(max(stops) for stops in zip(*([stop for _, stop in box] for box in boxes), strict=True))
    if len(extent) != len(leaf.shape) or any(stop > size for stop, size in zip(extent, leaf.shape, strict=True)):
        return _empty(extent, first)
    for wanted in _boxes(leaf):
        if sum(_size(common) for box in boxes if (common := _common(box, wanted)) is not None) != _size(wanted):
            return _empty((0,), first)
    return _empty(tuple(leaf.shape), first)


def _empty(shape: tuple[int, ...], like: NDArray[Any]) -> NDArray[Any]:
    return np.broadcast_to(np.empty((), like.dtype), shape)


def _boxes(leaf: Any) -> set[Box]:
    shape = tuple(leaf.shape)
    if getattr(leaf, "sharding", None) is None:
        return {_box((), shape)}
    return {_box(index, shape) for index in leaf.sharding.addressable_devices_indices_map(shape).values()}


def _box(index: tuple[slice, ...] | None, shape: tuple[int, ...]) -> Box:
    given = tuple(index or ())
    slices = given + (slice(None),) * (len(shape) - len(given))
    return tuple(one.indices(size)[:2] for one, size in zip(slices, shape, strict=True))


def _common(a: Box, b: Box) -> Box | None:
    box = tuple((max(p, q), min(r, s)) for (p, r), (q, s) in zip(a, b, strict=True))
    return box if all(start < stop for start, stop in box) else None


def _inside(box: Box, outer: Box) -> tuple[slice, ...]:
    return tuple(slice(start - first, stop - first) for (start, stop), (first, _) in zip(box, outer, strict=True))


def _size(box: Box) -> int:
    return math.prod(stop - start for start, stop in box)


def _key(name: str, box: Box, shape: tuple[int, ...]) -> str:
    if box == tuple((0, size) for size in shape):
        return name
    return f"{name}[{','.join(f'{start}:{stop}' for start, stop in box)}]"


def _parsed(key: str) -> tuple[str, Box | None]:
    match = _NAME.fullmatch(key)
    if match is None or match["box"] is None:
        return key, None
    ends = (one.split(":") for one in match["box"].split(","))
    return match["name"], tuple((int(start), int(stop)) for start, stop in ends)
