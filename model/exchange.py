"""Rows that travel between the devices of an axis, each device sending as many to each other one as it has for it.

One interface, that of `jax.lax.ragged_all_to_all`, and two ways: that collective, where the platform has it, and cells of a fixed
size in a plain all-to-all, which any platform has and which is what the tests hold to a plain loop.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Route(NamedTuple):
    """Where one device's rows go and whence it gets some; all [devices] int32, by the other device.

    Attributes:
        first_sent, sent: rows first_sent[i] to first_sent[i] + sent[i] go to device i.
        first_there: where they begin in device i's result.
        received: how many rows come from device i.
    """

    first_sent: Array
    sent: Array
    first_there: Array
    received: Array


def routes(sizes: Array, here: Array) -> tuple[Route, Route]:
    """The way there and the way back, for rows that lie in order of their receiver.

    Args:
        sizes: [sender, receiver] int32 rows of all devices of the axis.
        here: this device's place on the axis.

    A receiver has its rows in order of their sender, and after the way back each sender has its own in their old places.
    """
    by_receiver = jnp.cumsum(sizes, axis=1) - sizes  # where a sender's rows for each receiver begin, at the sender
    by_sender = jnp.cumsum(sizes, axis=0) - sizes  # where they begin at the receiver
    there = Route(by_receiver[here], sizes[here], by_sender[here], sizes[:, here])
    back = Route(by_sender[:, here], sizes[:, here], by_receiver[:, here], sizes[here])
    return there, back


def exchange(rows: Array, room: int, route: Route, axis: str, how: Literal["padded", "ragged"], *, most: int) -> Array:
    """Send rows along a mapped axis.

    Args:
        rows: [R, width].
        room: rows of the result; what no other device sends stays zero.
        most: rows that one device can send to another at most; a larger route loses rows when padded.

    Returns:
        [room, width].
    """
    if how == "padded":
        return _padded(rows, room, route, axis, most)
    empty = jnp.zeros((room, rows.shape[1]), rows.dtype)
    arrived: Array = jax.lax.ragged_all_to_all(rows, empty, route.first_sent, route.sent, route.first_there, route.received, axis_name=axis)
    return arrived


def _padded(rows: Array, room: int, route: Route, axis: str, most: int) -> Array:
    place = jnp.arange(most)[None]
    source = jnp.where(place < route.sent[:, None], route.first_sent[:, None] + place, rows.shape[0])  # behind the rows: reads zeros
    cells = jax.lax.all_to_all(rows.at[source].get(mode="fill", fill_value=0), axis, 0, 0, tiled=True)
    first = jax.lax.all_to_all(route.first_there, axis, 0, 0, tiled=True)
    target = jnp.where(place < route.received[:, None], first[:, None] + place, room)
    return jnp.zeros((room, rows.shape[1]), rows.dtype).at[target].add(cells, mode="drop")  # each place once: adding is setting
