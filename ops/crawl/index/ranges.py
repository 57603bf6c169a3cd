"""One range of an archive into a local file, whatever happens on the way: reading goes on behind the last byte that came."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO

from infra.storage.errors import TransientStorageError
from ops.crawl.index.archives import Archives, BusyError

FIRST_WAIT_S = 0.5
MAX_WAIT_S = 30.0


@dataclass(frozen=True)
class Patience:
    """When a range is given up: after `max_stalls` reads in a row without a byte. A read that gave one starts the count anew."""

    max_stalls: int
    first_wait_s: float = FIRST_WAIT_S
    sleep: Callable[[float], None] = time.sleep
    jitter: random.Random = field(default_factory=random.Random)

    def wait_s(self, stalls: int, error: TransientStorageError) -> float:
        """Before the next read: what the server asked for, else twice as long after each stall, with jitter."""
        if isinstance(error, BusyError) and error.retry_after_s is not None:
            return error.retry_after_s
        return min(self.first_wait_s * 2.0 ** max(stalls - 1, 0), MAX_WAIT_S) * self.jitter.uniform(0.5, 1.0)


def read_range(
    archives: Archives, name: str, start: int, end: int, sink: IO[bytes], patience: Patience, on_bytes: Callable[[int], None]
) -> None:
    """Write the bytes [start, end) of an archive to `sink`.

    Raises:
        TransientStorageError: `patience.max_stalls` reads in a row gave nothing.
        OutOfRangeError, PermanentStorageError: at once.
    """
    at, stalls = start, 0
    while at < end:
        before = at
        try:
            for chunk in archives.read(name, at, end):
                sink.write(chunk)
                at += len(chunk)
                on_bytes(len(chunk))
        except TransientStorageError as error:
            stalls = 0 if at > before else stalls + 1
            if stalls >= patience.max_stalls:
                raise TransientStorageError(f"{error}; given up after {stalls} reads in a row without a byte") from error
            patience.sleep(patience.wait_s(stalls, error))
