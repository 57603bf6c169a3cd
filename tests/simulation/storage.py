"""In-memory storage that loses requests and replies, goes away for a while, and lets others act in between."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import fsspec
import pytest
import tenacity.nap
from fsspec.implementations.memory import MemoryFileSystem

from infra.artifacts.manifest import MANIFEST_NAME
from tests.simulation.actors import Scheduler

SLOW_S = 200.0  # longer than it takes to be thought dead


@dataclass
class Weather:
    """How storage behaves.

    Attributes:
        lost_request, lost_reply: chance that a call fails without, or in spite of, its effect.
        slow: chance that the answer takes minutes, in which the world goes on.
        outage_s: from when until when nothing answers.
    """

    lost_request: float = 0.0
    lost_reply: float = 0.0
    slow: float = 0.0
    outage_s: tuple[float, float] = (0.0, 0.0)


class FaultyFileSystem(MemoryFileSystem):
    """Real code talks to it through `memory://`. A create stays atomic; between any two calls the others may act."""

    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    scheduler: ClassVar[Scheduler]
    weather: ClassVar[Weather]
    publications: ClassVar[list[str]] = []

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        return self._between_others(lambda: super(FaultyFileSystem, self).cat_file(path, start, end, **kwargs))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        return self._between_others(lambda: super(FaultyFileSystem, self).ls(path, detail, **kwargs))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        self._fail(self.weather.lost_request)
        super().pipe_file(path, value, mode, **kwargs)
        if path.endswith(MANIFEST_NAME):
            self.publications.append(path)
        self._fail(self.weather.lost_reply)

    def _between_others[T](self, call: Callable[[], T]) -> T:
        self.scheduler.hand_over()
        self._fail(self.weather.lost_request)
        try:
            return call()
        finally:
            self.scheduler.hand_over(SLOW_S if self.scheduler.random.random() < self.weather.slow else 0.0)

    def _fail(self, chance: float) -> None:
        scheduler = self.scheduler
        if scheduler.current() is None:
            return
        begin, end = self.weather.outage_s
        if begin <= scheduler.now_s < end or scheduler.random.random() < chance:
            raise TimeoutError("simulated: storage did not answer")


@contextmanager
def simulated_storage(scheduler: Scheduler, weather: Weather) -> Iterator[type[FaultyFileSystem]]:
    """Puts the faulty filesystem behind `memory://`, and the simulation's clock under the pauses between retries."""
    FaultyFileSystem.store.clear()
    FaultyFileSystem.pseudo_dirs[:] = [""]
    FaultyFileSystem.publications.clear()
    FaultyFileSystem.scheduler, FaultyFileSystem.weather = scheduler, weather
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tenacity.nap, "time", SimpleNamespace(sleep=scheduler.hand_over))
        fsspec.register_implementation("memory", FaultyFileSystem, clobber=True)
        try:
            yield FaultyFileSystem
        finally:
            fsspec.register_implementation("memory", MemoryFileSystem, clobber=True)
