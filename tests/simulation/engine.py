"""An engine that starts each gang once, preempts some, loses hosts, and does not always answer."""

from collections.abc import Callable
from dataclasses import dataclass, field

from infra.artifacts.store import ArtifactStore
from infra.dispatch import gang
from infra.dispatch.backend import EngineState, EngineUnavailable, Handle
from infra.dispatch.endings import End, Ending
from infra.dispatch.job import Attempt, Job, attempt_directory, job_id, write_spec
from tests.simulation.actors import Actor, Fate, Machine, Scheduler


@dataclass
class Faults:
    """How jobs and the engine behave; every number but the last is a chance.

    Attributes:
        unavailable: per call of the engine.
        slow_cancel: per cancel, that it is not confirmed at once.
        never_starts: per attempt.
        mortality: of each process of a job, per hand-over, shared among the hosts; what else dies with it is drawn too.
        application_error: per attempt.
        pausing: of each process of a job, per hand-over.
        steps: beats of a job.
    """

    unavailable: float = 0.0
    slow_cancel: float = 0.0
    never_starts: float = 0.0
    mortality: float = 0.0
    application_error: float = 0.0
    pausing: float = 0.0
    steps: int = 5


@dataclass(eq=False)
class Host:
    """One host of a gang: a supervisor, and the one rank that it parents.

    Attributes:
        is_working: from when the rank found its lease to be current until it ended.
        is_asked_to_stop: the engine sent the polite signal.
        returned: how the rank ended, if it did by itself: exit code, and what it said of a failure.
    """

    number: int
    machine: Machine
    supervisor: Actor = field(init=False)
    worker: Actor = field(init=False)
    is_working: bool = False
    is_asked_to_stop: bool = False
    steps: int = 0
    returned: tuple[int, object] | None = None

    @property
    def is_gone(self) -> bool:
        return self.supervisor.is_gone and self.worker.is_gone

    @property
    def works(self) -> bool:
        return self.is_working and not self.worker.is_gone


@dataclass(eq=False)
class Running:
    """One attempt at the engine.

    Attributes:
        word: what the engine knows of its end.
        is_at_fault: the program itself failed.
    """

    job: Job
    attempt: Attempt
    hosts: list[Host] = field(default_factory=list)
    word: End | None = None
    is_at_fault: bool = False

    @property
    def directory(self) -> str:
        return attempt_directory(self.job.address, self.attempt.number)

    @property
    def is_over(self) -> bool:
        return all(host.is_gone for host in self.hosts)

    @property
    def works(self) -> bool:
        return any(host.works for host in self.hosts)


Role = Callable[["SimulatedEngine", Running, Host], None]


@dataclass(eq=False)
class SimulatedEngine:
    """The backend protocol over actors.

    Args:
        supervisor, worker: what a host's two processes do.
        tell: of what happens here.
        check: what must hold, now that something has begun.
        on_over: told of an attempt each time it is called over.
    """

    scheduler: Scheduler
    store: ArtifactStore
    faults: Faults
    identity: str
    supervisor: Role
    worker: Role
    tell: Callable[[str], None]
    check: Callable[[], None]
    on_over: Callable[[Running], None]
    jobs: dict[str, Running] = field(default_factory=dict)

    def submit_or_attach(self, job: Job, attempt: Attempt) -> Handle:
        handle = Handle(job_id(job, attempt.number), attempt)
        write_spec(job, attempt)
        self._may_be_away()
        if handle.job_id not in self.jobs:
            self._start(handle, job)
        self._may_be_away()
        return handle

    def poll(self, handle: Handle) -> EngineState:
        self._may_be_away()
        running = self.jobs.get(handle.job_id)
        if running is None:
            return EngineState("ended", End(ending=Ending.NEVER_STARTED, what="the engine does not know it"))
        if not self._is_over(running):
            return EngineState("running")
        hosts = running.job.resources.target.hosts
        ends, fallen = gang.read_ends(running.directory, hosts), gang.read_fallen(running.directory)
        end = gang.gang_end(ends, hosts, fallen, running.word)
        self.tell(f"{handle.job_id} is over: {end.ending}")
        self.on_over(running)
        return EngineState("ended", end)

    def cancel(self, handle: Handle) -> bool:
        self._may_be_away()
        running = self.jobs.get(handle.job_id)
        if running is None or running.is_over:
            return True
        if self._happens(self.faults.slow_cancel):
            return False
        self.end(running, End(ending=Ending.PREEMPTED, what="it was told to stop"))
        return True

    def logs(self, handle: Handle, tail: int) -> str:
        return ""

    def log_location(self, handle: Handle) -> str:
        return f"{self.identity}/{handle.job_id}"

    def end(self, running: Running, word: End) -> None:
        """Kill whatever of it is left."""
        running.word = running.word or word
        self.tell(f"{job_id(running.job, running.attempt.number)} is ended: {word.ending}")
        for host in running.hosts:
            self.scheduler.kill(host.supervisor)
            self.scheduler.kill(host.worker)

    def _is_over(self, running: Running) -> bool:
        return running.is_over

    def _may_be_away(self) -> None:
        self.scheduler.hand_over()
        if self._happens(self.faults.unavailable):
            raise EngineUnavailable("simulated: the engine did not answer")

    def _happens(self, chance: float) -> bool:
        return self.scheduler.current() is not None and self.scheduler.random.random() < chance

    def _start(self, handle: Handle, job: Job) -> None:
        running = self.jobs[handle.job_id] = Running(job, handle.attempt)
        if self._happens(self.faults.never_starts):
            running.word = End(ending=Ending.NEVER_STARTED, what="simulated")
            return
        for number in range(job.resources.target.hosts):
            host = Host(number, Machine(f"{self.identity}/{handle.job_id}/{number}"))
            running.hosts.append(host)
            fate = Fate(
                self.faults.mortality / job.resources.target.hosts, self.faults.pausing, lambda host=host: self._strike(running, host)
            )  # type: ignore[misc]
            host.supervisor = self.scheduler.spawn(
                f"a{handle.attempt.number} supervisor {number}", self._bound(self.supervisor, running, host), host.machine, fate
            )
            host.worker = self.scheduler.spawn(
                f"a{handle.attempt.number} rank {number}", self._bound(self.worker, running, host), host.machine, fate
            )
        self.tell(f"{handle.job_id} starts ({handle.attempt.uid})")

    def _bound(self, role: Role, running: Running, host: Host) -> Callable[[], None]:
        return lambda: role(self, running, host)

    def _strike(self, running: Running, host: Host) -> None:
        """A process died. What kind of accident was it?"""
        kind = self.scheduler.random.choice(("crash", "node", "preemption", "polite preemption"))
        self.tell(f"{kind} at host {host.number} of a{running.attempt.number}")
        if kind == "crash":
            self.scheduler.kill(host.worker)
            if host.supervisor.is_killed:  # it was the supervisor that died, and its rank with it
                running.word = running.word or (None if len(running.hosts) > 1 else End(ending=Ending.SUPERVISOR_LOST, what="simulated"))
        elif kind == "node":
            self.scheduler.kill(host.supervisor)
            self.scheduler.kill(host.worker)
            if len(running.hosts) == 1 or self._happens(0.5):
                self.end(running, End(ending=Ending.NODE_LOST, what="simulated"))
        elif kind == "preemption":
            self.end(running, End(ending=Ending.PREEMPTED, what="simulated"))
        else:
            running.word = running.word or End(ending=Ending.PREEMPTED, what="simulated")
            for each in running.hosts:
                each.is_asked_to_stop = True
            self.scheduler.kill(host.worker)
