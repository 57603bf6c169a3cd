"""A keyed bijection of [0, n): shuffles a trillion windows without a list of them.

A balanced Feistel network over the next even power of two, walked along its cycles until it lands inside
[0, n). The round function is splitmix64's finaliser: an affine one leaves strides that a learner could see.
"""

from collections.abc import Callable

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


def permute(indices: Ints, size: int | Ints, key: Keys) -> Ints:
    """Where each index goes in the permutation of [0, size) that `key` names.

    Args:
        indices: int64, any shape, each in [0, size).
        size: at most 2^62; one for all, or one per index.
        key: uint64; one permutation for all, or one per index.

    Returns:
        int64 in [0, size), in the shape of `indices`. For a fixed size and key it is a bijection.

    Raises:
        ValueError: a size or an index is out of range.
    """
    return _walk(indices, size, key, _encrypt)


def unpermute(places: Ints, size: int | Ints, key: Keys) -> Ints:
    """Which index goes to each place: the inverse of `permute` under the same size and key."""
    return _walk(places, size, key, _decrypt)


def _walk(indices: Ints, size: int | Ints, key: Keys, cipher: Callable[[Keys, Keys, Keys], Keys]) -> Ints:
    """Apply a bijection of the next even power of two until every value is inside [0, size) again."""
    wanted = np.asarray(indices, np.int64)
    sizes = np.broadcast_to(np.asarray(size, np.int64), wanted.shape).ravel()
    keys = np.broadcast_to(key, wanted.shape).ravel()
    _check(wanted.ravel(), sizes)
    values, half_bits = wanted.ravel().astype(np.uint64), _half_bits(sizes)
    outside = np.arange(len(values))
    while outside.size:
        values[outside] = cipher(values[outside], keys[outside], half_bits[outside])
        outside = outside[values[outside] >= sizes[outside].astype(np.uint64)]
    return values.astype(np.int64).reshape(wanted.shape)


def _check(indices: Ints, sizes: Ints) -> None:
    if not ((sizes >= 1) & (sizes <= MAX_SIZE)).all():
        raise ValueError(f"a permutation of {sizes.min()}..{sizes.max()} elements is not supported; sizes must be in [1, 2^62]")
    wrong = np.flatnonzero((indices < 0) | (indices >= sizes))
    if wrong.size:
        raise ValueError(f"index {indices[wrong[0]]} is not in [0, {sizes[wrong[0]]})")


def _half_bits(sizes: Ints) -> Keys:
    """Half the bits that the largest index needs, rounded up, at least 1: uint64, exact for every int64."""
    return 1 + ((sizes[:, None] - 1) >> (2 * np.arange(1, 32)) > 0).sum(axis=1).astype(np.uint64)


def _encrypt(values: Keys, keys: Keys, half_bits: Keys) -> Keys:
    drop = np.uint64(64) - half_bits
    left, right = values >> half_bits, values & ((np.uint64(1) << half_bits) - np.uint64(1))
    for turn in range(1, ROUNDS + 1):
        left, right = right, left ^ (mix64(right ^ mix64(keys ^ np.uint64(turn))) >> drop)
    return (left << half_bits) | right


def _decrypt(values: Keys, keys: Keys, half_bits: Keys) -> Keys:
    drop = np.uint64(64) - half_bits
    left, right = values >> half_bits, values & ((np.uint64(1) << half_bits) - np.uint64(1))
    for turn in range(ROUNDS, 0, -1):
        right, left = left, right ^ (mix64(left ^ mix64(keys ^ np.uint64(turn))) >> drop)
    return (left << half_bits) | right
