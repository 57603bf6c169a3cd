"""A committed state as files of whole arrays, put together slab by slab from the files that hold their parts.

So a state is published that fits into nobody's memory: process 0 reads and writes, the others keep it company. A process that waits
without a word would be taken for a stalled one, and one that left would end the gang.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from infra.artifacts.writer import Writer
from infra.storage.streams import open_file
from model import gang
from model.array_files import SLAB_BYTES, Declared, Place, in_order, places_in, read_box, slabs_of, write_arrays
from model.boxes import Box, common, lengths, slices, within
from model.pieces import check_pieces, place_of
from model.state import Tree

_OPEN_FILES = 128  # at one time; a process may have 1,024, and a gang of thousands has as many files

Beat = Callable[[], None]
"""Says that work was done."""


class WholeState:
    """The arrays of a state whose parts lie in files, read a box at a time. A context: it closes what it opened."""

    def __init__(self, where: str, urls: Iterable[str], like: Tree) -> None:
        """Read the headers of all files.

        Args:
            where: what is read, for the message.
            like: shapes of the whole arrays.

        Raises:
            ArraysMismatchError: the files don't hold these arrays, or not all of them.
        """
        self._open: OrderedDict[str, IO[bytes]] = OrderedDict()
        self._parts: dict[str, list[tuple[Box, str, Place]]] = defaultdict(list)
        seen = {}
        for url in urls:
            for key, place in places_in(self._stream(url)).items():
                seen[key] = place.shape, place.dtype
                name, box = place_of(key, place.shape)
                self._parts[name].append((box, url, place))
        check_pieces(where, seen, like)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def box(self, name: str, wanted: Box) -> NDArray[Any]:
        """A slab of a whole array, from every part that has some of it."""
        parts = self._parts[name]
        out = np.empty(lengths(wanted), parts[0][2].dtype)
        for box, url, place in parts:
            shared = common(box, wanted)
            if shared is not None:
                out[slices(within(shared, wanted))] = read_box(self._stream(url), place, within(shared, box))
        return out

    def _stream(self, url: str) -> IO[bytes]:
        if url not in self._open:
            if len(self._open) == _OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            self._open[url] = open_file(url)
        self._open.move_to_end(url)
        return self._open[url]


def write_whole(name: str, declared: Declared, state: WholeState | None, out: Writer, beat: Beat) -> None:
    """Write a file of whole arrays. All processes call it, with the same arrays.

    Args:
        state: process 0's; None for the others.
    """
    together = _Together(beat)

    def slabs(key: str) -> Iterator[NDArray[Any]]:
        place = Place(*declared[key])
        for box in slabs_of(place):
            if state is not None:
                yield state.box(key, box)
            together.after(place, box)

    if state is None:
        for key in in_order(declared):
            for _ in slabs(key):
                pass
        return
    with out.open(name) as stream:
        write_arrays(stream.write, declared, slabs)


class _Together:
    """Lets the processes of a gang go on side by side, each beating whenever so much was written."""

    def __init__(self, beat: Beat) -> None:
        self._beat, self._written = beat, 0

    def after(self, place: Place, box: Box) -> None:
        self._written += int(np.prod(lengths(box))) * place.dtype.itemsize
        if self._written >= SLAB_BYTES:
            self._written = 0
            gang.all_agree(True)
            self._beat()
