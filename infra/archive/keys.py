"""Primary keys as 128-bit digests: equal keys have equal digests, so a set without a repeated digest has no repeated key.

The other way round is as good as true: among 10^9 rows two different keys share a digest with probability 1.5e-21, and
then a row is refused, not lost. A sidecar beside each shard holds its digests, sorted: 16 bytes a row.
"""

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

Digests = npt.NDArray[np.uint64]  # [2, rows]: high and low halves
DIGEST_BYTES = 16


def digests_of(batch: pa.RecordBatch, key: tuple[str, ...]) -> Digests:
    """A digest per row, in the rows' order. The key's columns hold strings or integers and no nulls.

    Each value goes in as `{bytes}:{text}`, so ("a", "bc") and ("ab", "c") differ.
    """
    parts: list[pa.Array | pa.Scalar] = []
    for name in key:
        text = batch.column(name).cast(pa.large_string())
        parts += [pc.binary_length(text).cast(pa.large_string()), pa.scalar(":", pa.large_string()), text]
    joined = pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string())).cast(pa.large_binary())
    return from_bytes(b"".join(map(xxhash.xxh3_128_digest, joined.to_pylist())))


def empty() -> Digests:
    return np.empty((2, 0), np.uint64)


def ordered(digests: Digests) -> Digests:
    """The same digests, ascending."""
    return np.ascontiguousarray(digests[:, np.lexsort((digests[1], digests[0]))])


def first_repeated(digests: Digests) -> int | None:
    """The position of a digest that stands further in front, too; None if all differ."""
    order = np.lexsort((digests[1], digests[0]))  # stable: of equal ones the earlier comes first
    high, low = digests[0][order], digests[1][order]
    repeats = np.flatnonzero((high[1:] == high[:-1]) & (low[1:] == low[:-1]))
    return int(order[repeats + 1].min()) if len(repeats) else None


def first_common(digests: Digests, committed: Digests) -> int | None:
    """The position of the first digest that is among `committed` (ascending); None if there is none."""
    left = np.searchsorted(committed[0], digests[0], "left")
    right = np.searchsorted(committed[0], digests[0], "right")
    for position in np.flatnonzero(right > left):
        if (committed[1][left[position] : right[position]] == digests[1][position]).any():
            return int(position)
    return None


def to_bytes(digests: Digests) -> bytes:
    """A sidecar: the digests, ascending, 16 bytes each, big-endian."""
    return ordered(digests).T.astype(">u8").tobytes()


def from_bytes(data: bytes) -> Digests:
    return np.ascontiguousarray(np.frombuffer(data, ">u8").reshape(-1, 2).astype(np.uint64).T)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
