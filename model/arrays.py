"""Named arrays as safetensors bytes: one format for checkpoints, final states and releases."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import numpy as safetensors

Arrays = Mapping[str, NDArray[Any]]
"""Host arrays by name; names are `/`-separated paths into a pytree."""


class ArraysMismatchError(ValueError):
    """Stored arrays are not the ones the model declares."""


def encode(arrays: Arrays) -> bytes:
    """Safetensors bytes; equal arrays give equal bytes.

    One metadata key alone: the format keeps metadata in a hash map, so two would be written in a random order.
    """
    contiguous = {name: np.require(np.asarray(array), requirements="C") for name, array in sorted(arrays.items())}
    return safetensors.save(contiguous, metadata={"format": "np"})


def decode(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays in safetensors bytes, by name."""
    loaded: dict[str, NDArray[Any]] = safetensors.load(data)
    return dict(sorted(loaded.items()))


def check_same_arrays(where: str, found: Arrays, expected: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
    """Refuse arrays that are missing, extra, or of another shape or dtype.

    Args:
        where: what was read, for the message.
        expected: name -> (shape, dtype).

    Raises:
        ArraysMismatchError: names the first differences of each kind.
    """
    wrong = [
        f"{name} is {found[name].dtype}{list(found[name].shape)}, not {dtype}{list(shape)}"
        for name, (shape, dtype) in expected.items()
        if name in found and (tuple(found[name].shape) != tuple(shape) or found[name].dtype != dtype)
    ]
    problems = _named("missing", sorted(set(expected) - set(found))) + _named("unexpected", sorted(set(found) - set(expected))) + wrong[:4]
    if problems:
        raise ArraysMismatchError(f"{where} doesn't hold this model's arrays: {'; '.join(problems)}; read it with the config that wrote it")


def _named(kind: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return [f"{kind} {', '.join(names[:4])}{more}"]
