# mypy: allow-untyped-defs, allow-untyped-calls
"""Eight bytes at once, as one number: what Numba has no word for, in LLVM's own."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # comes with Numba
from numba import types
from numba.extending import intrinsic

from ops.hashing.compiled import kernel

_WORD = ir.IntType(64)
_EVERY = np.uint64(0x0101010101010101)
_TOP_BITS, _LOW_BITS, _CASE = np.uint64(0x80) * _EVERY, np.uint64(0x7F) * _EVERY, np.uint64(0x20) * _EVERY
_TO_A, _PAST_Z = np.uint64(0x80 - ord("a")) * _EVERY, np.uint64(0x80 - ord("z") - 1) * _EVERY  # what lifts a byte to its top bit
_THREE, _BYTE, _WIDTH, _ALL = np.uint64(3), np.int64(8), np.int64(64), np.uint64(0xFFFFFFFFFFFFFFFF)


def _load_eight(_typing_context, data, at):
    """`data[at : at + 8]` (uint8, contiguous) as a uint64, its first byte the lowest. The caller knows that they are there."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(builder.gep(array.data, [arguments[1]]), _WORD.as_pointer())
        word = builder.load(place, align=1)
        return builder.bswap(word) if sys.byteorder == "big" else word

    return types.uint64(data, types.int64), generate


def _trailing_zeros(_typing_context, value):
    """Zero bits below the lowest one; `value` (uint64) is not 0."""

    def generate(_context, builder, _signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


load_eight: Callable[..., Any] = intrinsic(_load_eight)
trailing_zeros: Callable[..., Any] = intrinsic(_trailing_zeros)


@kernel
def leading_letters(eight):
    """How many of eight bytes, from the first, are ASCII letters."""
    low = (eight | _CASE) & _LOW_BITS
    others = ~((low + _TO_A) & ~(low + _PAST_Z) & ~eight) & _TOP_BITS
    return np.int64(trailing_zeros(others) >> _THREE) if others else _BYTE


@kernel
def first_bytes(eight, count):
    """The first `count` of eight bytes, 0 to 8; the others become 0."""
    return eight & (_ALL >> np.uint64(_WIDTH - _BYTE * count)) if count > 0 else np.uint64(0)
