"""Files of named arrays in the safetensors format, written and read a slab at a time: no array need fit into memory.

The bytes are those that the library writes of the same arrays, which wants them all in memory.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model.boxes import Box, entries, lengths

SLAB_BYTES = 64 * 2**20  # what is in memory at one time; reads of this size keep an object store busy

Declared = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Shape and dtype by name."""

CODES = {
    **{"uint64": "U64", "int64": "I64", "float64": "F64", "float32": "F32", "uint32": "U32", "int32": "I32", "float16": "F16"},
    **{"uint16": "U16", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"},
}
"""The format's names of dtypes, in the order in which a file has its arrays; those of one dtype come by name."""

_RANKS = {name: rank for rank, name in enumerate(CODES)}
_DTYPES = {code: np.dtype(name) for name, code in CODES.items()}
_LONGEST_HEADER = 100_000_000  # bytes; the format's own limit


class BrokenFileError(ValueError):
    """A file is none of this format, or not all of it is there."""


class Source(Protocol):
    """Where bytes come from, in order; a binary file is one, if not the only one."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Place:
    """Where an array lies in its file: `start` counts bytes from the file's beginning."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int = 0

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def slabs_of(place: Place) -> Iterator[Box]:
    """An array's boxes in the order in which its bytes lie, each one run of them and none above `SLAB_BYTES`."""
    shape, itemsize = place.shape, place.dtype.itemsize
    if not shape:
        yield ()
        return
    rows = [math.prod(shape[axis + 1 :]) * itemsize for axis in range(len(shape))]
    split = next(axis for axis, row in enumerate(rows) if row <= SLAB_BYTES)
    step = max(1, SLAB_BYTES // max(rows[split], 1))
    inner = tuple((0, size) for size in shape[split + 1 :])
    for outer in np.ndindex(*shape[:split]):
        for start in range(0, shape[split], step):
            yield (*((i, i + 1) for i in outer), (start, min(start + step, shape[split])), *inner)


def in_order(declared: Declared) -> list[str]:
    """Names in the order in which a file has their arrays."""
    return sorted(declared, key=lambda name: (_RANKS[declared[name][1].name], name))


def write_arrays(write: Callable[[Any], Any], declared: Declared, slabs: Callable[[str], Iterable[NDArray[Any]]]) -> None:
    """Write a file.

    Args:
        write: takes the next bytes.
        slabs: an array's entries, in as many parts as is convenient, in C order.
    """
    write(_header(declared))
    for name in in_order(declared):
        for slab in slabs(name):
            write(memoryview(np.require(slab, requirements="C").reshape(-1).view(np.uint8)))


def places_in(source: Source) -> dict[str, Place]:
    """What a file holds, in the order of its bytes, by its header alone.

    Raises:
        BrokenFileError: there is no header, or it can't be understood.
    """
    length = int.from_bytes(_exactly(source, 8), "little")
    if length > _LONGEST_HEADER:
        raise BrokenFileError(f"a header of {length} bytes is none")
    try:
        described = json.loads(_exactly(source, length))
        described.pop("__metadata__", None)
        found = {name: _place(8 + length, **entry) for name, entry in described.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BrokenFileError(f"the header can't be understood: {error}") from error
    return dict(sorted(found.items(), key=lambda item: item[1].start))


def slabs_in(source: Source, place: Place) -> Iterator[tuple[Box, NDArray[Any]]]:
    """An array's slabs, from a source that stands at its first byte.

    Raises:
        BrokenFileError: the source ends before the array does.
    """
    for box in slabs_of(place):
        shape = lengths(box)
        data = _exactly(source, math.prod(shape) * place.dtype.itemsize)
        yield box, np.frombuffer(data, place.dtype).reshape(shape)


def pass_over(source: Source, size: int) -> None:
    """Read bytes that nobody needs."""
    while size:
        size -= len(_exactly(source, min(size, SLAB_BYTES)))


def read_box(stream: IO[bytes], place: Place, box: Box) -> NDArray[Any]:
    """One of an array's runs of bytes: a slab, or what a slab shares with a part of the array.

    Raises:
        BrokenFileError: the file ends before it.
    """
    strides = [math.prod(place.shape[axis + 1 :]) for axis in range(len(place.shape))]
    stream.seek(place.start + place.dtype.itemsize * sum(start * stride for (start, _), stride in zip(box, strides, strict=True)))
    data = _exactly(stream, entries(box) * place.dtype.itemsize)
    return np.frombuffer(data, place.dtype).reshape(lengths(box))


def _header(declared: Declared) -> bytes:
    rows: dict[str, Any] = {"__metadata__": {"format": "np"}}
    end = 0
    for name in in_order(declared):
        shape, dtype = declared[name]
        start, end = end, end + math.prod(shape) * dtype.itemsize
        rows[name] = {"dtype": CODES[dtype.name], "shape": list(shape), "data_offsets": [start, end]}
    described = json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()
    padded = described + b" " * (-len(described) % 8)
    return len(padded).to_bytes(8, "little") + padded


def _place(first: int, dtype: str, shape: list[int], data_offsets: list[int]) -> Place:
    start, stop = data_offsets
    place = Place(tuple(int(size) for size in shape), _DTYPES[dtype], first + start)
    if stop - start != place.size:
        raise ValueError(f"{stop - start} bytes are no {dtype}{shape}")
    return place


def _exactly(source: Source, size: int) -> bytes:
    data = source.read(size)
    while len(data) < size:
        more = source.read(size - len(data))
        if not more:
            raise BrokenFileError(f"the file ends {size - len(data)} bytes early")
        data += more
    return data
