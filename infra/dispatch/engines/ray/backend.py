"""Ray as an engine. An attempt is a Ray job, whose driver places the gang; Ray's memory of it is all that is needed."""

import math
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass

from infra.artifacts.lease import read_beat
from infra.dispatch.backend import EngineState, Handle, JobRejected
from infra.dispatch.endings import End, Ending
from infra.dispatch.engines.ray.config import RayConfig
from infra.dispatch.engines.ray.jobs_api import JobsApi, Unauthorized
from infra.dispatch.engines.ray.placement import gang_of, shortage
from infra.dispatch.engines.ray.words import JobInfo, engine_word
from infra.dispatch.gang import gang_end, read_ends, read_fallen
from infra.dispatch.job import Attempt, Job, attempt_directory, is_cancelled, job_id, write_spec

DRIVER_GRACE_S = 10.0  # beyond the worker's own: for supervisors to record the end, and for the driver to hear of it
LINGER_S = 5.0  # beyond the worker's grace: how long a supervisor that lost its parent may take to end and to say so
STOP_AGAIN_S = 2.0  # a job that is only being started can't hear
_POLL_S = 0.1


@dataclass(frozen=True)
class _Facts:
    """What a poll needs to know of a job, kept in the job's metadata at Ray."""

    address: str
    hosts: int
    kill_grace_s: float

    def metadata(self) -> dict[str, str]:
        return {"address": self.address, "hosts": str(self.hosts), "kill_grace_s": str(self.kill_grace_s)}

    @classmethod
    def of(cls, info: JobInfo) -> "_Facts | None":
        told = info.metadata or {}
        return cls(told["address"], int(told["hosts"]), float(told["kill_grace_s"])) if "address" in told else None


class RayBackend:
    """Runs attempts on a Ray cluster. Ray has no preemption between jobs: they get nodes in the order of arrival.

    Args:
        clock, sleep: monotonic seconds.
    """

    def __init__(
        self, config: RayConfig, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._config = config
        self._api = JobsApi(config)
        self._clock = clock
        self._sleep = sleep
        self._facts: dict[str, _Facts] = {}
        self._begun: set[str] = set()
        self._over_since_s: dict[str, float] = {}

    @property
    def identity(self) -> str:
        return f"ray:{self._config.name}"

    def submit_or_attach(self, job: Job, attempt: Attempt) -> Handle:
        handle = Handle(job_id(job, attempt.number), attempt)
        name = submission_id(handle)
        facts = _Facts(job.address, job.resources.target.hosts, job.timeouts.kill_grace_s)
        ran_before = _has_run(facts, attempt)  # asked before Ray is: whoever left a trace was submitted
        try:
            known = self._api.job(name) is not None
        except Unauthorized as refused:
            if ran_before:
                raise
            raise JobRejected(str(refused)) from refused
        if not known and not ran_before:  # one that ran, and that Ray forgot, must not run twice: `poll` tells of its end
            self._require_possible(job)
            self._submit(name, job, attempt, facts)
        self._facts[name] = facts
        return handle

    def poll(self, handle: Handle) -> EngineState:
        name = submission_id(handle)
        info = self._api.job(name)
        facts = self._facts_of(name, info)
        if info is None:
            return self._forgotten(name, handle.attempt, facts)
        if info.is_over:
            return self._over(name, handle.attempt, facts, info)
        if info.status == "RUNNING" and facts is not None and self._has_begun(name, facts, handle.attempt):
            return EngineState("running")
        return EngineState("pending")

    def cancel(self, handle: Handle) -> bool:
        name = submission_id(handle)
        info = self._api.job(name)
        if info is None and name not in self._facts:
            return True
        facts = self._facts_of(name, info)
        grace_s = facts.kill_grace_s if facts else 0.0
        deadline_s, again_s = self._clock() + 2 * grace_s + DRIVER_GRACE_S + 2 * LINGER_S, self._clock()
        while self.poll(handle).phase != "ended":
            now_s = self._clock()
            if now_s >= deadline_s:
                return False
            if now_s >= again_s:
                self._api.stop(name)
                again_s = now_s + STOP_AGAIN_S
            self._sleep(_POLL_S)
        return True

    def logs(self, handle: Handle, tail: int) -> str:
        return "\n".join(self._api.log(submission_id(handle)).splitlines()[-tail:])

    def log_location(self, handle: Handle) -> str:
        return f"{self._config.address.rstrip('/')}/#/jobs/{submission_id(handle)}"

    def _require_possible(self, job: Job) -> None:
        refused = self._config.refusal(job.resources)
        if refused is not None:
            raise JobRejected(f"{job.title}: {refused}")
        if self._config.autoscaled:
            return
        missing = shortage(gang_of(job, self._config), self._api.nodes())
        if missing is not None:
            raise JobRejected(
                f"{job.title}: Ray cluster {self._config.name} can't run {job.resources.device}, which needs {missing}; choose a smaller "
                "device or fewer resources, or set autoscaled if nodes join on demand"
            )

    def _submit(self, name: str, job: Job, attempt: Attempt, facts: _Facts) -> None:
        spec_url = write_spec(job, attempt)
        command = [self._config.python, "-P", "-m", "infra.dispatch.engines.ray.launch", spec_url]
        command.append(gang_of(job, self._config).model_dump_json())
        stop_wait_s = math.ceil(job.timeouts.kill_grace_s + DRIVER_GRACE_S)  # Ray's own patience with a stopped driver is 3 s
        env = {"RAY_JOB_STOP_WAIT_TIME_S": str(stop_wait_s), **self._config.env}
        if self._config.sources is not None:
            env["PYTHONPATH"] = self._config.sources
        metadata = {"job": job.title, "attempt": str(attempt.number), "band": job.resources.band, **facts.metadata()}
        # `exec`: no shell between Ray and the driver, so that signals and exit codes are the driver's own
        self._api.submit(name, f"exec {shlex.join(command)}", env=env, metadata=metadata)

    def _facts_of(self, name: str, info: JobInfo | None) -> _Facts | None:
        """As this client submitted the job, or as whoever did told Ray."""
        return self._facts.get(name) or (None if info is None else _Facts.of(info))

    def _has_begun(self, name: str, facts: _Facts, attempt: Attempt) -> bool:
        """Whether a supervisor is at work: until then the driver waits for the gang's place."""
        if name not in self._begun and read_beat(facts.address, attempt.number) is not None:
            self._begun.add(name)
        return name in self._begun

    def _forgotten(self, name: str, attempt: Attempt, facts: _Facts | None) -> EngineState:
        """Ray had the job and has it no more: a head that restarted without its memory lost every job with it."""
        word = End(ending=Ending.NODE_LOST, what=f"Ray cluster {self._config.name} doesn't know the job any more; was its head restarted?")
        if facts is None:
            return EngineState("ended", word)
        return self._ended(attempt, facts, self._seen_over_for_s(name), lambda heard: word)

    def _over(self, name: str, attempt: Attempt, facts: _Facts | None, info: JobInfo) -> EngineState:
        if facts is None:
            what = f"the job {name} at Ray cluster {self._config.name} is not Seaway's"
            return EngineState("ended", End(ending=Ending.NEVER_STARTED, what=what))
        cancelled = is_cancelled(facts.address, attempt.number)
        over_for_s = self._seen_over_for_s(name) if info.over_for_s is None else info.over_for_s
        return self._ended(attempt, facts, over_for_s, lambda heard: engine_word(info, cancelled=cancelled, heard=heard))

    def _seen_over_for_s(self, name: str) -> float:
        """By this client alone, for want of the cluster's clock."""
        return self._clock() - self._over_since_s.setdefault(name, self._clock())

    def _ended(self, attempt: Attempt, facts: _Facts, over_for_s: float, word: Callable[[bool], End | None]) -> EngineState:
        """The attempt is over for Ray; for us once each host told its end, or had the time to.

        A supervisor whose raylet or driver died is told to stop by its kernel; it ends its workers and records that.
        """
        directory = attempt_directory(facts.address, attempt.number)
        ends = read_ends(directory, facts.hosts)
        if len(ends) < facts.hosts and over_for_s < facts.kill_grace_s + LINGER_S:
            return EngineState("running")
        return EngineState("ended", gang_end(ends, facts.hosts, read_fallen(directory), word(bool(ends))))


def _has_run(facts: _Facts, attempt: Attempt) -> bool:
    """Whether any host of the attempt left a trace."""
    if read_beat(facts.address, attempt.number) is not None:
        return True
    return bool(read_ends(attempt_directory(facts.address, attempt.number), facts.hosts))


def submission_id(handle: Handle) -> str:
    """The job's name at Ray. The uid keeps the attempts of a store that was removed and made anew apart."""
    return f"{handle.job_id}-{handle.attempt.uid}"
