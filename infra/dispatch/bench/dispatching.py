"""How long a job takes that does nothing: until its program starts, until it is reported, and when it is published already."""

import time
from collections.abc import Iterator
from itertools import count

from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import Backend
from infra.dispatch.bench.measures import Measure
from infra.dispatch.bench.nothing import STARTED_NAME, job_of
from infra.dispatch.dispatcher import Dispatcher

NO_OP_TARGET_S = 0.5


class DispatchBench:
    """Jobs on one engine, one after the other."""

    def __init__(self, name: str, store: ArtifactStore, backend: Backend) -> None:
        self._store = store
        self._dispatcher = Dispatcher(store, backend)
        self._numbers: Iterator[int] = count()
        self._target_s = NO_OP_TARGET_S if name == "local" else None
        self.started = Measure(f"{name}: submit to start")
        self.reported = Measure(f"{name}: submit to reported", target=self._target_s)
        self.reused = Measure(f"{name}: published already")

    @property
    def measures(self) -> list[Measure]:
        return [self.started, self.reported, self.reused]

    def once(self) -> None:
        """Measure each of the three once more."""
        job = job_of(self._store, next(self._numbers))
        submitted_s, began_s = time.time(), time.perf_counter()
        outcome = self._dispatcher.run(job)
        self.reported.values.append(time.perf_counter() - began_s)
        self.started.values.append(outcome.artifact.read_json(STARTED_NAME)["at_s"] - submitted_s)
        began_s = time.perf_counter()
        self._dispatcher.run(job)
        self.reused.values.append(time.perf_counter() - began_s)
