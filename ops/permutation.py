"""A keyed bijection of [0, n): shuffles a trillion windows without a list of them.

A balanced Feistel network over the next even power of two, walked along its cycles until it lands inside
[0, n). The round function is splitmix64's finaliser: an affine one leaves strides that a learner could see.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

ROUNDS = 6  # 4 make a pseudo-random permutation of a good round function; two more cost 3 ns an index
MAX_SIZE = 1 << 62  # the Feistel domain is at most four times this: it still fits 64 bits

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix64(values: Keys) -> Keys:
    """Splitmix64's finaliser: every input bit flips each output bit with probability one half. Wraps modulo 2^64.

    Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators".
    """
    with np.errstate(over="ignore"):
        mixed = values + GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


def key_of(*parts: int | Ints) -> Keys:
    """One 64-bit key for a tuple of numbers, or one per element where a part is an array.

    Returns:
        uint64, in the parts' broadcast shape (a 0-d array if all parts are plain numbers). Order matters: (1, 2) is not (2, 1).
    """
    key = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            key = mix64(np.asarray(mix64(key) + np.asarray(part, np.int64).astype(np.uint64)))
    return np.asarray(key)


def permute(indices: Ints, size: int, key: Keys) -> Ints:
    """Where each index goes in the permutation of [0, size) that `key` names.

    Args:
        indices: int64, any shape, each in [0, size).
        size: at most 2^62.
        key: uint64, broadcastable to `indices`: one permutation for all, or one per index.

    Returns:
        int64 in [0, size), in the shape of `indices`. For a fixed key it is a bijection.

    Raises:
        ValueError: a size or an index is out of range.
    """
    if not 1 <= size <= MAX_SIZE:
        raise ValueError(f"a permutation of {size} elements is not supported; the size must be in [1, 2^62]")
    wanted = np.asarray(indices, np.int64)
    if wanted.size and (wanted.min() < 0 or wanted.max() >= size):
        raise ValueError(f"indices {wanted.min()}..{wanted.max()} are not all in [0, {size})")
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    keys = np.broadcast_to(key, wanted.shape).ravel()
    values = _encrypt(wanted.ravel().astype(np.uint64), keys, half_bits)
    outside = np.flatnonzero(values >= np.uint64(size))
    while outside.size:
        values[outside] = _encrypt(values[outside], keys[outside], half_bits)
        outside = outside[values[outside] >= np.uint64(size)]
    return values.astype(np.int64).reshape(wanted.shape)


def _encrypt(values: Keys, keys: Keys, half_bits: int) -> Keys:
    shift, drop = np.uint64(half_bits), np.uint64(64 - half_bits)
    mask = np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for turn in range(1, ROUNDS + 1):
        left, right = right, left ^ (mix64(right ^ mix64(keys ^ np.uint64(turn))) >> drop)
    return (left << shift) | right
