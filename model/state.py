"""The train state: everything a step reads and writes, and its form as named host arrays."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpy.typing import NDArray

from model import gang
from model.arrays import Arrays, check_same_arrays

Tree = Any
"""A pytree of arrays. Its structure is the model's and the optimizer's business."""


class TrainState(NamedTuple):
    """What a step turns into the next one.

    The step number is not here: it is the data cursor and lies beside the state, on the host.
    """

    parameters: Tree
    optimizer: Tree
    router_bias: Array


def to_arrays(tree: Tree) -> dict[str, NDArray[Any]]:
    """Copy a pytree to the host as whole arrays named by their path (`parameters/layers/router`). All processes must ask for it."""
    leaves = named_leaves(tree)
    if gang.count() == 1:
        return {name: np.asarray(leaf) for name, leaf in jax.device_get(leaves).items()}  # all copies at one time
    return {name: gang.whole(leaf) for name, leaf in leaves.items()}


def named_leaves(tree: Tree) -> dict[str, Any]:
    """The leaves of a pytree by their path, in its own order."""
    return {_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def from_arrays(where: str, arrays: Arrays, like: Tree) -> Tree:
    """Rebuild a pytree on the default device.

    Args:
        where: what was read, for the message.
        like: the tree to rebuild; arrays or `jax.eval_shape` results.

    Raises:
        ArraysMismatchError: an array is missing, extra, or of another shape or dtype. Nothing is filled in.
    """
    structure = jax.tree.structure(like)
    expected = {name: (tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in named_leaves(like).items()}
    check_same_arrays(where, arrays, expected)
    # A copy on purpose: the step donates its state, and a donated buffer must not be the reader's memory.
    return jax.tree_util.tree_unflatten(structure, [jax.numpy.array(arrays[name], copy=True) for name in expected])


def shapes_of(tree: Tree) -> Tree:
    """The same tree with shapes and dtypes only."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def same(a: ArrayLike, b: ArrayLike) -> bool:
    """Whether two arrays hold the same bits."""
    left, right = np.asarray(a), np.asarray(b)
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
