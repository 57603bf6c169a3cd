"""Parts of arrays: named by their place, put together whatever cut them, refused where one is missing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from model.arrays import ArraysMismatchError
from model.pieces import Assembly, own_pieces

WHOLE = np.arange(24, dtype=np.float32).reshape(4, 6)
QUARTERS = {
    "head[0:2,0:3]": WHOLE[:2, :3],
    "head[2:4,0:3]": WHOLE[2:, :3],
    "head[0:2,3:6]": WHOLE[:2, 3:],
    "head[2:4,3:6]": WHOLE[2:, 3:],
}
LIKE = {"head": jax.ShapeDtypeStruct((4, 6), jnp.float32, sharding=SingleDeviceSharding(jax.local_devices()[0]))}


def assembled(pieces: dict[str, np.ndarray], like: Any = LIKE) -> Any:
    """The tree that these pieces make, given row by row."""
    found = Assembly(like)
    for key, piece in pieces.items():
        if not found.wants(key, piece.shape, piece.dtype):
            continue
        for row in range(piece.shape[0]):
            found.take(key, piece.shape, ((row, row + 1), (0, piece.shape[1])), piece[row : row + 1])
    return found.tree("here")


def test_what_one_device_holds_whole_bears_its_name_alone_and_comes_back() -> None:
    pieces = own_pieces({"head": jnp.asarray(WHOLE)})
    assert list(pieces) == ["head"]
    np.testing.assert_array_equal(assembled(pieces)["head"], WHOLE)


def test_parts_are_put_together_by_the_place_in_their_names() -> None:
    np.testing.assert_array_equal(assembled(QUARTERS)["head"], WHOLE)


@pytest.mark.parametrize(
    "pieces",
    [
        {name: piece for name, piece in QUARTERS.items() if name != "head[2:4,0:3]"},
        {**QUARTERS, "head[4:6,0:3]": WHOLE[:2, :3]},
        {f"{name[:-1]},0:1]": piece[..., None] for name, piece in QUARTERS.items()},
        {name: piece.astype(np.float64) for name, piece in QUARTERS.items()},
        {},
        {**QUARTERS, "tail": WHOLE},
    ],
    ids=["a part is missing", "a larger array", "another rank", "another dtype", "nothing", "another array"],
)
def test_parts_of_another_array_or_not_all_of_them_are_refused(pieces: dict[str, np.ndarray]) -> None:
    with pytest.raises(ArraysMismatchError, match="here doesn't hold this model's arrays"):
        assembled(pieces)


def test_only_what_overlaps_with_what_a_process_needs_is_wanted() -> None:
    found = Assembly(LIKE)
    assert found.wants("head[0:2,0:3]", (2, 3), WHOLE.dtype)
    assert found.needs("head[0:2,0:3]", (2, 3), ((1, 2), (0, 3)))
    assert not found.wants("head[4:8,0:6]", (4, 6), WHOLE.dtype)
    assert not found.wants("head[0:2,0:3]", (2, 3), np.dtype(np.float64))
