"""A world: dispatchers, engines and storage that one seed disturbs, with everything that happens judged at once."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import tenacity
from fsspec.registry import _registry as KNOWN_FILESYSTEMS  # noqa: N812 - nothing public takes a registration back

from infra.artifacts import lease as lease_module
from infra.artifacts import store as store_module
from infra.artifacts.lease import StalenessObserver
from infra.artifacts.recipe import recipe_of
from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import EngineUnavailable
from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.job import Job, Resources
from infra.dispatch.outcome import JobCancelled, JobFailed, Outcome
from infra.dispatch.plan import last_of_earlier_runs
from infra.dispatch.reconcile import carry_out, reconcile, survey
from infra.storage.errors import StorageError
from tests.simulation import invariants
from tests.simulation.actors import Fate, Killed, Machine, Scheduler
from tests.simulation.bucket import Bucket, SimulatedS3
from tests.simulation.engine import Running, SimulatedEngine
from tests.simulation.history import History, Violation
from tests.simulation.host import supervise, work
from tests.simulation.invariants import STALE_S, Claim, Facts
from tests.simulation.plans import TROUBLES, Plan

MAX_RESTARTS = 6
DEVICES = {1: "cpu", 2: "h100x16", 3: "h100x24", 4: "h100x32"}


@dataclass(eq=False)
class World:
    """One seed's world, run once."""

    seed: int
    trouble: str = "any"
    outcomes: list[Outcome] = field(default_factory=list)
    failures: list[JobFailed] = field(default_factory=list)
    cancellations: int = 0
    lives: int = 0
    going_on: int = 0

    def __post_init__(self) -> None:
        self.plan = TROUBLES[self.trouble](Plan.drawn(self.seed))
        self.scheduler = Scheduler(self.seed)
        self.history = History(lambda: self.scheduler.now_s, self._who)
        self.bucket = Bucket(self.scheduler, self.plan.weather, self._stored)
        self.store = ArtifactStore("s3://simulated")
        self.job = _job(self.store, self.plan.hosts)
        self.facts = Facts(self.bucket, self.job, self.plan.budgets)

    def run(self) -> None:
        """Let it happen.

        Raises:
            Violation: with the whole history.
        """
        generator = random.getstate()
        random.seed(self.seed)  # tenacity draws its pauses from the global generator
        try:
            with pytest.MonkeyPatch.context() as patch:
                self._patch(patch)
                self._people()
                self.scheduler.run()
                self.scheduler.now_s += self.plan.weather.late_s  # by then everybody sees everything
                invariants.idle_fleet_uses_nothing(self.facts)
                self._everybody_got_an_answer()
        except Violation as violation:
            raise Violation(violation.invariant, f"{violation.args[0]}\n\n{self.story()}") from None
        finally:
            self.scheduler.close()
            random.setstate(generator)

    def story(self) -> str:
        again = f"again: python -m tests.simulation --seed {self.seed} --trouble {self.trouble}"
        return f"world {self.seed}: {self.plan}\n{self.history}\n{again}"

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        """Simulated storage behind `s3://`, and simulated time under every pause and clock that real code has of its own."""
        SimulatedS3.bucket = self.bucket
        patch.setitem(KNOWN_FILESYSTEMS, "s3", SimulatedS3)
        patch.setattr(tenacity.nap, "time", SimpleNamespace(sleep=self.scheduler.hand_over))
        patch.setattr(tenacity, "time", SimpleNamespace(monotonic=lambda: self.scheduler.now_s))
        patch.setattr(store_module, "ThreadPoolExecutor", _Inline)
        patch.setattr(lease_module, "uuid4", lambda: SimpleNamespace(hex=self._uid()))
        patch.setattr("infra.dispatch.dispatcher.last_of_earlier_runs", self._first_look)
        patch.setattr("time.time", self._wall_s)

    def _people(self) -> None:
        engines = [self._engine(number) for number in range(self.plan.engines)]
        self.facts.engines = engines
        for number in range(self.plan.dispatchers):
            self._spawn(engines[number % len(engines)], after_s=self.scheduler.random.choice((0.0, 0.0, 30.0)))
        if self.plan.cancels:
            self.scheduler.spawn(
                "canceller", lambda: self._cancel(engines[0]), Machine("canceller"), after_s=self.scheduler.random.uniform(0, 60)
            )
        if self.plan.sweeps:
            for engine in engines:
                self.scheduler.spawn(f"sweeper of {engine.identity}", lambda engine=engine: self._sweep(engine), Machine("sweeper"))  # type: ignore[misc]

    def _engine(self, number: int) -> SimulatedEngine:
        return SimulatedEngine(
            self.scheduler, self.store, self.plan.faults, f"engine {number}", supervise, work, self.history.add, self._check, self._over
        )

    def _spawn(self, engine: SimulatedEngine, after_s: float) -> None:
        self.lives += 1
        self.going_on += 1
        name = f"dispatcher {self.lives}"
        plan = self.plan.dispatcher
        fate = Fate(plan.mortality, plan.pausing) if self.lives <= MAX_RESTARTS else Fate()

        def live() -> None:
            try:
                self._answered(name, self._dispatcher(engine, name).run(self.job))
            except JobFailed as failed:
                self._failed(name, failed)
            except JobCancelled:
                self.cancellations += 1
                self.history.add("was told: cancelled")
            except (StorageError, EngineUnavailable) as error:  # its patience is over; Dagster retries the step
                self.history.add(f"gives up, and Dagster tries the step again: {error}")
                self._spawn(engine, after_s=self.scheduler.random.uniform(0, 120))
            except Killed:
                self.history.add("is killed")
                self._spawn(engine, after_s=self.scheduler.random.uniform(0, 120))
                raise
            finally:
                self.going_on -= 1

        self.scheduler.spawn(name, live, self._machine(name), fate, after_s=after_s)

    def _machine(self, name: str) -> Machine:
        draw = self.scheduler.random
        jumps = [(draw.uniform(0, 200), draw.choice((-1, 1)) * draw.uniform(100, 5000)) for _ in range(3 * self.plan.clock_jumps)]
        return Machine(name, jumps)

    def _dispatcher(self, engine: SimulatedEngine, name: str) -> Dispatcher:
        clock = self.scheduler
        return Dispatcher(
            self.store,
            engine,
            self.plan.budgets,
            poll_interval_s=5.0,
            stale_s=STALE_S,
            clock=lambda: clock.now_s,
            sleep=clock.hand_over,
            mint_uid=self._uid,
        )

    def _cancel(self, engine: SimulatedEngine) -> None:
        self.cancellations += 1
        if self._dispatcher(engine, "canceller").cancel(self.job):
            self.history.add("was told: nothing of it runs")
            if not self.plan.sweeps:  # it cancels too, and may be in the middle of it
                invariants.cancelled_gives_back(self.facts)

    def _sweep(self, engine: SimulatedEngine) -> None:
        """The sensor: looks now and then as long as anybody works."""
        observer = StalenessObserver(lambda: self.scheduler.now_s)
        while self.going_on:
            self.scheduler.hand_over(60.0)
            try:
                for action in reconcile(list(survey([self.job.address], engine, observer)), stale_s=STALE_S):
                    self.history.add(f"sweeps: {action}")
                    carry_out(action, engine)
            except (StorageError, EngineUnavailable):
                continue

    def _stored(self, path: str, before: bytes | None, after: bytes | None) -> None:
        """Something was written or removed: note what it means, then ask what must hold."""
        name = path.removeprefix(self.facts.path(""))
        folder, _, file = name.rpartition("/")
        number = int(folder[-6:]) if folder.startswith(".attempts/") and folder[-6:].isdigit() else 0
        note: dict[str, Callable[..., None]] = {"claim.json": self._claimed, "beat.json": self._beat, "end.json": self._ended}
        if after is not None and number and file in note:
            note[file](number, before, json.loads(after))
        elif file == ".provenance.json":
            self.facts.provenance_s[folder.removeprefix("attempt-")] = self.scheduler.now_s
        elif name == ".artifact.json":
            self._published(before, after)
        elif after is None:
            self.history.add(f"removes {name}")
        self._check()

    def _claimed(self, number: int, before: bytes | None, claim: dict[str, Any]) -> None:
        by, now_s = self._who(), self.scheduler.now_s
        self.history.add(f"claims attempt {number} ({claim['uid']})")
        if before is not None:
            raise Violation("at_most_one_live_attempt", f"token {number} was given twice")
        previous = self.facts.claims.get(number - 1)
        if previous is not None and previous.ended is None:
            raise Violation("at_most_one_live_attempt", f"attempt {number} was claimed, and attempt {number - 1} has not ended")
        visible_s = self.bucket.visible_from_s(self.facts.path(f".attempts/{number:06d}/claim.json"))
        self.facts.claims[number] = Claim(number, claim["uid"], by, last_beat_s=now_s, visible_s=visible_s)
        invariants.every_budget_is_charged_once(self.facts, self._ends(by, number), gave_up=False)

    def _beat(self, number: int, before: bytes | None, beat: dict[str, Any]) -> None:
        if before is not None and json.loads(before) == beat:
            return  # written again, its reply was lost: it says nothing that the first write did not
        claim = self.facts.claims[number]
        claim.longest_silence_s = max(claim.longest_silence_s, self.scheduler.now_s - claim.last_beat_s)
        claim.last_beat_s = self.scheduler.now_s

    def _ended(self, number: int, before: bytes | None, end: dict[str, Any]) -> None:
        claim = self.facts.claims[number]
        claim.ended, claim.end = end["reason"], end["detail"]
        claim.longest_silence_s = max(claim.longest_silence_s, self.scheduler.now_s - claim.last_beat_s)
        self.history.add(f"records the end of attempt {number}: {claim.ended} ({claim.end['what']})")
        invariants.an_end_is_its_own(self.facts, claim)
        invariants.what_ran_is_charged(self.facts, claim)

    def _published(self, before: bytes | None, after: bytes | None) -> None:
        if before is not None or after is None:
            raise Violation("one_winner", "a published manifest was written over or removed")
        self.facts.manifest = after
        uid = json.loads(after)["directory"].removeprefix("attempt-")
        self.history.add(f"publishes attempt {uid}")
        invariants.winner_was_not_fenced(self.facts, uid)

    def _answered(self, name: str, outcome: Outcome) -> None:
        self.history.add(f"was told: {outcome.how}")
        self.outcomes.append(outcome)
        invariants.winner_knows_it(self.facts, name, outcome)

    def _failed(self, name: str, failed: JobFailed) -> None:
        self.history.add(f"was told: {failed}")
        self.failures.append(failed)
        if self.facts.manifest is not None and failed.ending.value in ("succeeded", "unpublished"):
            raise Violation("published_is_complete", "published, and yet reported as failed")
        ends = self._ends(name, 1_000_000)
        invariants.preemption_alone_never_fails(self.facts, name, ends, failed)
        invariants.every_budget_is_charged_once(self.facts, ends, gave_up=True)

    def _ends(self, who: str, before: int) -> list[dict[str, Any]]:
        """The ends of this dispatcher's run before an attempt number, of those that it can see."""
        since = self.facts.since.get(who, 0)
        claims = [claim for number, claim in sorted(self.facts.claims.items()) if since < number < before and claim.ended is not None]
        visible = [claim for claim in claims if self.bucket.visible(self.facts.path(f".attempts/{claim.number:06d}/end.json")) is not None]
        return [{**claim.end, "ending": "unpublished" if claim.ended == "succeeded" else claim.ended} for claim in visible]

    def _first_look(self, newest: Any) -> int:
        since = last_of_earlier_runs(newest)
        self.facts.since.setdefault(self._who(), since)
        return since

    def _over(self, running: Running) -> None:
        invariants.nothing_is_left_of_what_is_over(self.facts, running)

    def _check(self) -> None:
        for holds in invariants.THROUGHOUT:
            holds(self.facts)

    def _everybody_got_an_answer(self) -> None:
        if len(self.outcomes) + len(self.failures) + self.cancellations < self.plan.dispatchers:
            raise Violation("everybody_gets_an_answer", "a dispatcher ended without one")

    def _who(self) -> str:
        actor = self.scheduler.current()
        return "" if actor is None else actor.name

    def _wall_s(self) -> float:
        actor = self.scheduler.current()
        return self.scheduler.now_s if actor is None else actor.machine.wall_s(self.scheduler.now_s)

    def _uid(self) -> str:
        return f"{self.scheduler.random.getrandbits(64):016x}"


class _Inline:
    """A pool whose work is done by whoever asks for it: an actor has one thread."""

    def __init__(self, threads: int) -> None:
        self.map = map

    def __enter__(self) -> "_Inline":
        return self

    def __exit__(self, *_: Any) -> None:
        return None


def _job(store: ArtifactStore, hosts: int) -> Job:
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
        resources=Resources(device=DEVICES[hosts]),
    )
