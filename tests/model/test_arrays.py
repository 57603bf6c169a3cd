"""Named arrays and the strict way back into a pytree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.arrays import ArraysMismatchError, decode, encode
from model.state import TrainState, from_arrays, same, shapes_of, to_arrays


def state() -> TrainState:
    return TrainState(
        parameters={"a": jnp.arange(6, dtype=jnp.float32).reshape(2, 3), "b": jnp.ones((4,), jnp.float32)},
        optimizer=(jnp.int32(7), {"mu": jnp.full((2, 3), 0.1)}),
        router_bias=jnp.zeros((2, 8)),
    )


def test_a_state_comes_back_bit_for_bit_with_its_scalars() -> None:
    before = state()
    after = from_arrays("here", decode(encode(to_arrays(before))), shapes_of(before))
    assert str(jax.tree.structure(before)) == str(jax.tree.structure(after))
    assert all(same(a, b) for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))


def test_equal_arrays_in_another_order_and_layout_give_equal_bytes() -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert encode({"x": a, "y": a[0]}) == encode({"y": a[0].copy(), "x": np.asfortranarray(a)})


def test_names_are_paths_into_the_tree() -> None:
    assert sorted(to_arrays(state())) == ["optimizer/0", "optimizer/1/mu", "parameters/a", "parameters/b", "router_bias"]


def test_missing_extra_and_misshapen_arrays_are_refused_by_name() -> None:
    arrays = to_arrays(state())
    del arrays["parameters/b"]
    arrays["parameters/c"] = np.zeros(3)
    arrays["router_bias"] = np.zeros((2, 9), np.float32)
    with pytest.raises(ArraysMismatchError, match=r"missing parameters/b; unexpected parameters/c; router_bias is float32\[2, 9\], not"):
        from_arrays("here", arrays, shapes_of(state()))


def test_another_dtype_is_refused_rather_than_cast() -> None:
    arrays = to_arrays(state())
    arrays["parameters/b"] = arrays["parameters/b"].astype(np.float64)
    with pytest.raises(ArraysMismatchError, match="float64"):
        from_arrays("here", arrays, shapes_of(state()))
