"""Batches that are read while the step before them computes, so that training never waits for storage that keeps up with it."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from model.batch import HostBatch
from model.loader import MixtureLoader


class ReadAhead:
    """A loader with a thread that has the next step's rows ready. A context: the thread is gone after it.

    A batch is a pure function of its step, so it is the same whoever reads it and when.
    """

    def __init__(self, loader: MixtureLoader, *, steps: int) -> None:
        """Read ahead up to the last of `steps`, counted from the run's own start."""
        self._loader, self._steps = loader, steps
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: tuple[int, slice, Future[HostBatch]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def batch(self, step: int, rows: slice = slice(None)) -> HostBatch:
        """As `MixtureLoader.batch`; then the same rows of the next step are begun."""
        if self._next is not None and self._next[:2] == (step, rows):
            reading = self._next[2]
        else:
            reading = self._thread.submit(self._loader.batch, step, rows)
        found = reading.result()
        ahead = step + 1
        self._next = (ahead, rows, self._thread.submit(self._loader.batch, ahead, rows)) if ahead < self._steps else None
        return found
