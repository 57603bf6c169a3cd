"""How an attempt ended, from everything its supervisor knows. Pure."""

import signal
from dataclasses import dataclass

from infra.dispatch.endings import Ending, describe, ending_of
from infra.supervise.pulse import Failure

_CLOCKS = (Ending.STALLED, Ending.TIMED_OUT)
# What the supervisor's own steps after an expired clock may end as. SIGUSR1 kills a worker that can't dump its stacks yet;
# the dump walks the frames of threads that go on running, and may fall over one with SIGSEGV (seen once in 1,600 tests).
_OURS = (0, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGUSR1, -signal.SIGSEGV)


@dataclass(frozen=True)
class Stop:
    """Why the supervisor ended the worker."""

    ending: Ending
    what: str


@dataclass(frozen=True)
class Evidence:
    """What is known when the worker is gone.

    Attributes:
        published: an artifact lies at the job's address.
        returncode: as `subprocess` gives it; negative is the signal.
        stop: set if the supervisor ended the worker.
        failure: what the worker said of itself.
        oom_kills: processes that the kernel killed for memory meanwhile.
    """

    published: bool
    returncode: int
    stop: Stop | None = None
    failure: Failure | None = None
    oom_kills: int = 0


def verdict(evidence: Evidence) -> tuple[Ending, str]:
    """The ending and one sentence about it.

    The published manifest breaks every tie: what is published has succeeded, whatever happened to the process
    later; and a process that says 0 and published nothing has failed. A clock that ran out wins over the signals
    that it made the supervisor send, not over the worker's own word.
    """
    stop, code = evidence.stop, evidence.returncode
    if evidence.published:
        return Ending.SUCCEEDED, _published(evidence)
    if stop is not None and (stop.ending not in _CLOCKS or (code in _OURS and evidence.failure is None)):
        return stop.ending, stop.what
    if evidence.failure is not None:
        return Ending(evidence.failure.ending), evidence.failure.what
    if code == 0:
        return Ending.UNPUBLISHED, "the process ended with exit code 0 and published nothing"
    if code == -signal.SIGKILL and evidence.oom_kills:
        return Ending.OUT_OF_MEMORY, "the kernel killed the process because memory ran out"
    return ending_of(code), f"the process ended by itself: {describe(code)}" if code > 0 else f"the process was {describe(code)}"


def _published(evidence: Evidence) -> str:
    if evidence.returncode == 0:
        return "published"
    afterwards = evidence.failure or evidence.stop
    return f"published, then: {afterwards.what if afterwards else describe(evidence.returncode)}"
