"""An engine that starts each attempt once, loses some, and does not always answer. And the jobs that it runs."""

from contextlib import suppress
from dataclasses import dataclass, field

from infra.artifacts.lease import Lease, LeaseLost
from infra.artifacts.program import Stats
from infra.artifacts.provenance import Code, Environment, Provenance
from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import EngineState, EngineUnavailable, Handle
from infra.dispatch.endings import End, Ending
from infra.dispatch.job import Attempt, Job, is_cancelled, job_id
from infra.storage.errors import StorageError
from tests.simulation.actors import Actor, Killed, Scheduler

BEAT_S = 10.0
LOSSES = (Ending.PREEMPTED, Ending.NODE_LOST, Ending.CRASHED, Ending.SUPERVISOR_LOST)


class CountStats(Stats):
    numbers: int


@dataclass
class Faults:
    """How jobs and the engine behave; every number but the last is a chance.

    Attributes:
        unavailable: per call of the engine.
        never_starts: per job.
        mortality: of a job, per hand-over.
        application_error: per job.
        silence: per beat, that the job falls silent for minutes and then goes on as if nothing had been.
        steps: beats of a job.
    """

    unavailable: float = 0.0
    never_starts: float = 0.0
    mortality: float = 0.0
    application_error: float = 0.0
    silence: float = 0.0
    steps: int = 5


@dataclass
class Running:
    """One attempt at the engine."""

    job: Job
    attempt: Attempt
    actor: Actor | None = None
    end: End | None = None
    steps: int = 0


@dataclass
class SimulatedEngine:
    """The backend protocol over actors."""

    scheduler: Scheduler
    store: ArtifactStore
    faults: Faults
    identity: str
    jobs: dict[str, Running] = field(default_factory=dict)
    starts: list[str] = field(default_factory=list)

    def submit_or_attach(self, job: Job, attempt: Attempt) -> Handle:
        self._may_be_away()
        handle = Handle(job_id(job, attempt.number), attempt)
        if handle.job_id not in self.jobs:
            self._start(handle, job)
        self._may_be_away()
        return handle

    def poll(self, handle: Handle) -> EngineState:
        self._may_be_away()
        end = self.jobs[handle.job_id].end
        return EngineState("running") if end is None else EngineState("ended", end)

    def cancel(self, handle: Handle) -> bool:
        self._may_be_away()
        running = self.jobs.get(handle.job_id)
        if running is not None and running.actor is not None and running.end is None:
            running.actor.is_killed = True
            running.end = End(ending=Ending.PREEMPTED, what="it was told to stop")
        return True

    def logs(self, handle: Handle, tail: int) -> str:
        return ""

    def log_location(self, handle: Handle) -> str:
        return f"{self.identity}/{handle.job_id}"

    def _may_be_away(self) -> None:
        self.scheduler.hand_over()
        if self.scheduler.random.random() < self.faults.unavailable:
            raise EngineUnavailable("simulated: the engine did not answer")

    def _start(self, handle: Handle, job: Job) -> None:
        alive = [name for name, running in self.jobs.items() if running.end is None]
        assert not alive, f"{handle.job_id} starts at {self.identity} beside {alive}"
        running = self.jobs[handle.job_id] = Running(job, handle.attempt)
        if self.scheduler.random.random() < self.faults.never_starts:
            running.end = End(ending=Ending.NEVER_STARTED, what="simulated")
            return
        self.starts.append(handle.job_id)
        running.actor = self.scheduler.spawn(f"job {handle.job_id}", lambda: self._live(running), mortality=self.faults.mortality)

    def _live(self, running: Running) -> None:
        """Supervisor and worker in one: work, and record the end unless killed."""
        try:
            end = self._work(running)
            lease = Lease(running.job.address, running.attempt.number, running.attempt.uid)
            with suppress(StorageError):  # the dispatcher records it
                lease.end(end.ending.value, end.model_dump(mode="json"))
            running.end = running.end or end
        except Killed:
            ending = self.scheduler.random.choice(LOSSES)
            running.end = running.end or End(ending=ending, what="simulated", steps=running.steps)
            raise

    def _work(self, running: Running) -> End:
        job, attempt, random = running.job, running.attempt, self.scheduler.random
        fails_at = random.randrange(self.faults.steps) if random.random() < self.faults.application_error else None
        try:
            if is_cancelled(job.address, attempt.number):
                return End(ending=Ending.CANCELLED, what="it was cancelled before it started")
            lease = Lease.reopen(job.address, attempt.number, attempt.uid)
            for step in range(self.faults.steps):
                self.scheduler.hand_over(300.0 if random.random() < self.faults.silence else BEAT_S)
                _beat(lease)
                running.steps = step + 1
                if step == fails_at:
                    return End(ending=Ending.APPLICATION_ERROR, what="simulated", steps=running.steps)
            self._publish(job, lease)
        except LeaseLost as lost:
            return End(ending=Ending.LEASE_LOST, what=str(lost), steps=running.steps)
        except StorageError as error:
            return End(ending=Ending.STORAGE_AWAY, what=str(error), steps=running.steps)
        return End(ending=Ending.SUCCEEDED, what="published", steps=running.steps)

    def _publish(self, job: Job, lease: Lease) -> None:
        if self.store.open_at(job.address) is not None:
            return
        self.store.clear(job.address, lease.uid)
        out = self.store.writer(job.address, lease.uid)
        out.write_json("numbers.json", [1, 2, 3])
        stats = CountStats(numbers=3)
        self.store.publish(job.address, out, recipe=job.recipe, payload=job.payload, stats=stats, lease=lease, provenance=_PROVENANCE)


def _beat(lease: Lease) -> None:
    with suppress(StorageError):  # as the supervisor's keeper does: storage that does not answer is no loss
        lease.beat()


_ENVIRONMENT = Environment(user="nobody", host="nowhere", python="3", platform="simulated", packages={})
_PROVENANCE = Provenance(captured_at="2000-01-01T00:00:00Z", code=Code(), environment=_ENVIRONMENT, config={})
