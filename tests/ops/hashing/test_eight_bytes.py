import numpy as np
import pytest

from ops.hashing.compiled import kernel
from ops.hashing.eight_bytes import first_bytes, leading_letters, load_eight


@kernel
def _loaded(data: np.ndarray, at: int) -> np.uint64:
    return load_eight(data, at)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def every_byte() -> np.ndarray:
    return np.arange(256, dtype=np.uint8)


def test_eight_bytes_are_loaded_from_any_place_with_the_first_lowest(every_byte: np.ndarray) -> None:
    for at in (0, 1, 7, 247, 248):
        assert int(_loaded(every_byte, at)) == int.from_bytes(every_byte[at : at + 8].tobytes(), "little")


def test_letters_are_counted_up_to_the_first_byte_that_is_none() -> None:
    for other in range(256):
        for count in range(8):
            eight = b"aZzAmMqQ"[:count] + bytes([other]) + b"kK{\xe9\0[@`"[: 7 - count]
            expected = next((i for i, byte in enumerate(eight) if not (byte < 0x80 and chr(byte).isalpha())), 8)
            assert leading_letters(np.uint64(int.from_bytes(eight, "little"))) == expected, eight


@pytest.mark.parametrize("count", range(9))
def test_the_bytes_behind_the_first_ones_become_zero(count: int) -> None:
    eight = b"\xff\x01abcdef"
    assert int(first_bytes(np.uint64(int.from_bytes(eight, "little")), count)) == int.from_bytes(eight[:count], "little")
