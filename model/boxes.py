"""Boxes of arrays: where a part of an array lies, and what two parts share."""

import math

Box = tuple[tuple[int, int], ...]
"""Start and stop along every axis."""


def box_of(index: tuple[slice, ...] | None, shape: tuple[int, ...]) -> Box:
    """The box that slices select of an array; None and axes without a slice are whole."""
    given = tuple(index or ())
    slices = given + (slice(None),) * (len(shape) - len(given))
    return tuple(one.indices(size)[:2] for one, size in zip(slices, shape, strict=True))


def common(a: Box, b: Box) -> Box | None:
    """What two boxes share; None if that is nothing."""
    box = tuple((max(p, q), min(r, s)) for (p, r), (q, s) in zip(a, b, strict=True))
    return box if all(start < stop for start, stop in box) else None


def within(box: Box, outer: Box) -> Box:
    """A box as seen from the first corner of one around it."""
    return tuple((start - first, stop - first) for (start, stop), (first, _) in zip(box, outer, strict=True))


def moved(box: Box, outer: Box) -> Box:
    """The inverse of `within`."""
    return tuple((start + first, stop + first) for (start, stop), (first, _) in zip(box, outer, strict=True))


def slices(box: Box) -> tuple[slice, ...]:
    """A box as an index."""
    return tuple(slice(start, stop) for start, stop in box)


def lengths(box: Box) -> tuple[int, ...]:
    """The shape of what lies in a box."""
    return tuple(stop - start for start, stop in box)


def entries(box: Box) -> int:
    """How many entries lie in a box."""
    return math.prod(lengths(box))
