"""Files of arrays against the library that the format comes from, in slabs of a few bytes."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import numpy as safetensors

from model import array_files
from model.array_files import CODES, BrokenFileError, pass_over, places_in, read_box, slabs_in, slabs_of, write_arrays
from model.boxes import slices

ARRAYS = {
    "parameters/w[0:2,0:3]": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "count": np.array(3, np.int32),
    "nothing": np.zeros((0, 4), np.float32),
    "turned": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    **{name: np.arange(5).astype(name) for name in CODES},
}


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "SLAB_BYTES", 20)


def written(arrays: dict[str, Any]) -> bytes:
    """In slabs, as a state that exceeds memory is written."""
    out = io.BytesIO()
    declared = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    whole = places_in(io.BytesIO(safetensors.save(arrays)))
    write_arrays(out.write, declared, lambda name: (arrays[name][slices(box)] for box in slabs_of(whole[name])))
    return out.getvalue()


def test_a_file_has_the_bytes_that_the_library_writes() -> None:
    contiguous = {name: np.require(array, requirements="C") for name, array in ARRAYS.items()}
    assert written(contiguous) == written(ARRAYS) == safetensors.save(contiguous, metadata={"format": "np"})


def test_what_is_read_slab_by_slab_and_passed_over_is_what_was_written() -> None:
    source = io.BytesIO(written(ARRAYS))
    for number, (name, place) in enumerate(places_in(source).items()):
        if number % 2:
            pass_over(source, place.size)
            continue
        for box, found in slabs_in(source, place):
            assert found.dtype == ARRAYS[name].dtype
            np.testing.assert_array_equal(found, ARRAYS[name][slices(box)])
    assert source.read() == b""


@settings(deadline=None)
@given(st.lists(st.integers(0, 7), max_size=4).map(tuple))
def test_slabs_are_all_of_an_array_in_the_order_of_its_bytes(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    out = io.BytesIO(written({"a": array}))
    place = places_in(out)["a"]
    boxes = list(slabs_of(place))
    assert [entry for box in boxes for entry in array[slices(box)].reshape(-1).tolist()] == array.reshape(-1).tolist()
    for box in boxes:
        assert array[slices(box)].nbytes <= 20
        np.testing.assert_array_equal(read_box(out, place, box), array[slices(box)])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x04\0\0\0\0\0\0\0{",
        b"\xff" * 8 + b"{}",
        b"\x02\0\0\0\0\0\0\0[]",
        b'\x11\0\0\0\0\0\0\0{"a": {"dtype":1}}',
        b'\x3d\0\0\0\0\0\0\0{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        written({"a": np.ones(3, np.float32)})[:-1],
    ],
    ids=["empty", "half a header", "a huge header", "no names", "no place", "other bytes", "half an array"],
)
def test_a_broken_file_is_told_from_a_whole_one(data: bytes) -> None:
    def read(source: io.BytesIO) -> None:
        for place in places_in(source).values():
            list(slabs_in(source, place))

    with pytest.raises(BrokenFileError):
        read(io.BytesIO(data))
