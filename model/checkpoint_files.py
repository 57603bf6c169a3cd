"""Files of a checkpoint's pieces: written and read slab by slab, and known by their size and hash."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from infra.storage.filesystem import open_filesystem
from infra.storage.streams import new_file, open_file
from infra.storage.users import write_url
from model.array_files import BrokenFileError, pass_over, places_in, slabs_in, write_arrays
from model.arrays import Arrays
from model.boxes import Box

Entry = tuple[int, str]
"""A file's size in bytes and its SHA-256 in hex."""

_READ_BYTES = 4 * 2**20


class Taker(Protocol):
    """Who reads a checkpoint: told of every piece there is, and given the entries of those that it wants, slab by slab."""

    def wants(self, key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool: ...

    def take(self, key: str, shape: tuple[int, ...], inside: Box, given: NDArray[Any]) -> None: ...


def write(url: str, arrays: Arrays) -> Entry:
    """Write a file of pieces, in parts where storage takes parts.

    Raises:
        StorageError: the disk is full, read-only, or does not answer; nothing is left of the file.
    """
    filesystem, path = open_filesystem(write_url(url))
    stream, size, sha256 = new_file(filesystem, path, url), 0, hashlib.sha256()

    def take(data: Any) -> None:
        nonlocal size
        stream.write(memoryview(data))
        sha256.update(data)
        size += len(data)

    try:
        write_arrays(take, {key: (piece.shape, piece.dtype) for key, piece in arrays.items()}, lambda key: (arrays[key],))
        stream.commit(size, sha256.hexdigest())
    except BaseException:
        stream.discard()
        raise
    return size, sha256.hexdigest()


def give(url: str, entry: Entry, taker: Taker, *, is_only: bool) -> bool:
    """Give a taker what it wants of a file; whether that is the file that was committed.

    Args:
        is_only: the file is all there is, so it is read even if nothing of it is wanted. One of many is not: nobody knows its bytes then.
    """
    try:
        with open_file(url) as stream:
            source = _Hashing(stream)
            wanted = [(key, place, taker.wants(key, place.shape, place.dtype)) for key, place in places_in(source).items()]
            if not is_only and not any(wants for _, _, wants in wanted):
                return True
            for key, place, wants in wanted:
                if not wants:
                    pass_over(source, place.size)
                    continue
                for inside, given in slabs_in(source, place):
                    taker.take(key, place.shape, inside, given)
            return source.entry() == entry
    except (FileNotFoundError, BrokenFileError):
        return False


def is_whole(url: str, entry: Entry, beat: Callable[[], None]) -> bool:
    """Whether a file is the one that was committed; beats while it is read."""
    with suppress(FileNotFoundError), open_file(url) as stream:
        source = _Hashing(stream)
        while source.read(_READ_BYTES):
            beat()
        return source.entry() == entry
    return False


class _Hashing:
    """Bytes that are read in order, with their number and hash."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._size, self._hash = stream, 0, hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(size)
        self._size += len(data)
        self._hash.update(data)
        return data

    def entry(self) -> Entry:
        """Of all that is left of the file, too."""
        while self.read(_READ_BYTES):
            pass
        return self._size, self._hash.hexdigest()
