"""Dispatchers, leases and publication under faults: real code, simulated storage, engines and time.

`SEAWAY_SIMULATION_SEEDS=5000` runs more worlds. A failing world names its seed and is the same each time:
`pytest tests/simulation -k 'world-1234'`, after setting SEAWAY_SIMULATION_SEEDS above 1234.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from infra.artifacts.lease import AttemptRecord, attempts
from infra.artifacts.recipe import recipe_of
from infra.artifacts.store import ArtifactStore
from infra.dispatch.budgets import Budgets
from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.endings import COSTS, Budget, Ending
from infra.dispatch.job import Job
from infra.dispatch.outcome import JobCancelled, JobFailed, Outcome
from tests.simulation.actors import Killed, Scheduler
from tests.simulation.engine import Faults, SimulatedEngine
from tests.simulation.storage import FaultyFileSystem, Weather, simulated_storage

SEEDS = int(os.environ.get("SEAWAY_SIMULATION_SEEDS", "300"))
MAX_RESTARTS = 6
STALE_S = 90.0


@dataclass
class World:
    """What one seed makes happen."""

    seed: int
    engines: int = 1
    dispatchers: int = 2
    dispatcher_mortality: float = 0.0
    cancels: bool = False
    budgets: Budgets = field(default_factory=Budgets)
    faults: Faults = field(default_factory=Faults)
    weather: Weather = field(default_factory=Weather)
    outcomes: list[Outcome] = field(default_factory=list)
    failures: list[JobFailed] = field(default_factory=list)
    cancellations: int = 0
    lives: int = 0

    @classmethod
    def drawn(cls, seed: int) -> "World":
        """A world in which each kind of fault may or may not exist: rare ones must not hide behind frequent ones."""
        draw = random.Random(seed)

        def chance(most: float) -> float:
            return draw.choice((0.0, 0.0, most / 10, most))

        begin = draw.uniform(0, 100)
        return cls(
            seed=seed,
            engines=draw.choice((1, 1, 2)),
            dispatchers=draw.choice((1, 2, 3)),
            dispatcher_mortality=chance(0.05),
            cancels=draw.random() < 0.1,
            budgets=Budgets(
                application=draw.choice((0, 0, 2)),
                infrastructure=draw.choice((3, 1000)),
                crashes_before_first_step_in_a_row=draw.choice((3, 1000)),
                backoff_s=draw.choice((0.0, 1.0)),
            ),
            faults=Faults(
                unavailable=chance(0.3),
                never_starts=chance(0.5),
                mortality=chance(0.05),
                application_error=chance(0.5),
                silence=chance(0.2),
                steps=draw.randrange(1, 6),
            ),
            weather=Weather(chance(0.2), chance(0.2), chance(0.02), (begin, begin + draw.choice((0.0, 0.0, 120.0)))),
        )

    @property
    def is_kind(self) -> bool:
        """Whether every fault in it is one that must be survived: the budgets are large, and no program fails."""
        is_patient = min(self.budgets.infrastructure, self.budgets.crashes_before_first_step_in_a_row) == 1000
        return is_patient and not (self.faults.application_error or self.faults.never_starts or self.cancels)

    def run(self, scheduler: Scheduler) -> tuple[Job, list[SimulatedEngine]]:
        """Let it happen."""
        store = ArtifactStore("memory://simulated")
        job = _job(store)
        engines = [SimulatedEngine(scheduler, store, self.faults, f"engine {number}") for number in range(self.engines)]
        for number in range(self.dispatchers):
            self._spawn(scheduler, store, engines[number % self.engines], job, after_s=scheduler.random.choice((0.0, 0.0, 30.0)))
        if self.cancels:
            dispatcher = self._dispatcher(scheduler, store, engines[0])
            scheduler.spawn("canceller", lambda: self._cancel(dispatcher, job), after_s=scheduler.random.uniform(0, 60))
        scheduler.run()
        return job, engines

    def _spawn(self, scheduler: Scheduler, store: ArtifactStore, engine: SimulatedEngine, job: Job, after_s: float) -> None:
        self.lives += 1
        mortality = self.dispatcher_mortality if self.lives <= MAX_RESTARTS else 0.0

        def live() -> None:
            try:
                self.outcomes.append(self._dispatcher(scheduler, store, engine).run(job))
            except JobFailed as failed:
                self.failures.append(failed)
            except JobCancelled:
                self.cancellations += 1
            except Killed:
                self._spawn(scheduler, store, engine, job, after_s=scheduler.random.uniform(0, 120))
                raise

        scheduler.spawn(f"dispatcher {self.lives}", live, mortality=mortality, after_s=after_s)

    def _dispatcher(self, scheduler: Scheduler, store: ArtifactStore, engine: SimulatedEngine) -> Dispatcher:
        return Dispatcher(
            store, engine, self.budgets, poll_interval_s=5.0, stale_s=STALE_S, clock=lambda: scheduler.now_s, sleep=scheduler.hand_over
        )

    def _cancel(self, dispatcher: Dispatcher, job: Job) -> None:
        dispatcher.cancel(job)
        self.cancellations += 1


def _job(store: ArtifactStore) -> Job:
    payload = {"program": "count", "version": "1", "config": {}, "inputs": {}}
    recipe = recipe_of(payload)
    return Job(
        asset="counted",
        partition=None,
        program="tests.nowhere:count",
        version="1",
        config={},
        inputs={},
        recipe=recipe,
        payload=payload,
        address=store.address("counted", None, recipe),
    )


@pytest.fixture
def replayable(request: pytest.FixtureRequest) -> Iterator[None]:
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.mark.usefixtures("replayable")
@pytest.mark.parametrize("seed", range(SEEDS), ids=lambda seed: f"world-{seed}")
def test_whatever_fails_there_is_one_artifact_or_a_reason(seed: int):
    world, scheduler = World.drawn(seed), Scheduler(seed)
    random.seed(seed)  # tenacity draws its pauses from the global generator
    with simulated_storage(scheduler, world.weather) as storage:
        job, engines = world.run(scheduler)
        check_publication(world, storage, ArtifactStore("memory://simulated"), job)
        check_attempts(world, attempts(job.address), engines)
        check_answers(world)


def check_publication(world: World, storage: type[FaultyFileSystem], store: ArtifactStore, job: Job) -> None:
    artifact = store.open_at(job.address)
    assert len(storage.publications) <= 1, "a manifest was written twice"
    assert (artifact is not None) == bool(storage.publications)
    if artifact is None:
        assert not world.outcomes, "an artifact was reported that is not there"
    else:
        store.verify(artifact)  # whatever was swept beside it
    assert len({outcome.artifact.digest for outcome in world.outcomes}) <= 1


def check_attempts(world: World, records: list[AttemptRecord], engines: list[SimulatedEngine]) -> None:
    assert [record.token for record in records] == list(range(1, len(records) + 1)), "attempt numbers have gaps"
    assert len({record.uid for record in records}) == len(records)
    for engine in engines:
        assert len(engine.starts) == len(set(engine.starts)), "an attempt was started twice"
        assert all(running.end is not None for running in engine.jobs.values()), "a job was left running"
    spent = [COSTS[Ending(record.ended)].budget for record in records if record.ended is not None]
    for budget, limit in ((Budget.APPLICATION, world.budgets.application), (Budget.INFRASTRUCTURE, world.budgets.infrastructure)):
        assert spent.count(budget) <= (limit + 1) * world.lives  # who comes after a failure was reported starts afresh


def check_answers(world: World) -> None:
    """Every dispatcher that lived got an answer, and a failure was reported only for a reason that exists in this world."""
    assert len(world.outcomes) + len(world.failures) + world.cancellations >= world.dispatchers
    faults = world.faults
    for failed in world.failures:
        assert failed.ending not in (Ending.SUCCEEDED, Ending.UNPUBLISHED), "published, and yet reported as failed"
        assert failed.ending is not Ending.APPLICATION_ERROR or faults.application_error
        assert failed.ending is not Ending.NEVER_STARTED or faults.never_starts
    if world.is_kind:
        assert not world.failures, "nothing was wrong with the job, and yet it failed"


def test_a_world_is_the_same_each_time_it_is_run():
    def turns(seed: int) -> tuple[list[str], float]:
        world, scheduler = World.drawn(seed), Scheduler(seed)
        random.seed(seed)
        with simulated_storage(scheduler, world.weather):
            _, engines = world.run(scheduler)
            return [name for engine in engines for name in engine.starts], scheduler.now_s

    assert [turns(seed) for seed in range(20)] == [turns(seed) for seed in range(20)]
