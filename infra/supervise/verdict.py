"""How an attempt ended, from everything its supervisor knows. Pure."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from infra.dispatch.endings import EXIT_CODES, Ending, describe, ending_of, is_symptom, severity
from infra.supervise.pulse import Failure

CLOCKS = (Ending.STALLED, Ending.TIMED_OUT)
# What the supervisor's own steps after an expired clock may end as. SIGUSR1 kills a worker that can't dump its stacks yet;
# the dump walks the frames of threads that go on running, and may fall over one with SIGSEGV (seen once in 1,600 tests).
_OURS = (0, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGUSR1, -signal.SIGSEGV)


@dataclass(frozen=True)
class Stop:
    """Why the supervisor ended the workers. `show_stacks` asks for every thread's stack in the log before that."""

    ending: Ending
    what: str
    show_stacks: bool = False


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
    if stop is not None and (stop.ending not in CLOCKS or (code in _OURS and evidence.failure is None)):
        return stop.ending, stop.what
    if evidence.failure is not None:
        return Ending(evidence.failure.ending), evidence.failure.what
    if code == 0:
        return Ending.UNPUBLISHED, "the process ended with exit code 0 and published nothing"
    if code == -signal.SIGKILL and evidence.oom_kills:
        return Ending.OUT_OF_MEMORY, "the kernel killed the process because memory ran out"
    return ending_of(code), f"the process ended by itself: {describe(code)}" if code > 0 else f"the process was {describe(code)}"


@dataclass(frozen=True)
class RankEnd:
    """A rank of a gang that ended by itself, before its supervisor ended anything."""

    rank: int
    returncode: int
    failure: Failure | None = None

    @property
    def has_fallen(self) -> bool:
        """Whether the gang can't go on without it. Another rank than 0 may return early: rank 0 publishes for all."""
        return self.returncode != 0 or self.failure is not None

    def verdict(self, oom_kills: int = 0) -> tuple[Ending, str]:
        """How this rank ended, seen alone.

        A distributed runtime aborts a process whose peers are lost, so in a gang SIGABRT is a symptom.
        """
        ending, what = verdict(Evidence(False, self.returncode, None, self.failure, oom_kills))
        if self.returncode in (-signal.SIGABRT, EXIT_CODES[Ending.CRASHED]) and self.failure is None:
            return Ending.PEER_LOST, f"rank {self.rank}: {what}, as a distributed runtime does when a peer is lost"
        return ending, f"rank {self.rank}: {what}"


@dataclass(frozen=True)
class GangEvidence:
    """What is known of one host's ranks of a gang when they are gone.

    Attributes:
        published: an artifact lies at the job's address.
        ended: the ranks that ended by themselves; of those that fell, all that had fallen at the first look.
        stop: set if the supervisor ended them for another reason than a rank's fall.
        has_rank_0: of the gang.
    """

    published: bool
    ended: Sequence[RankEnd]
    stop: Stop | None
    has_rank_0: bool
    oom_kills: int = 0


def gang_verdict(evidence: GangEvidence) -> tuple[Ending, str, Failure | None]:
    """The ending of a host's ranks, one sentence about it, and the failure that it came from.

    The cause and not a symptom: of ranks that fell together, the one whose end can't be the answer to another's.
    """
    if evidence.published:
        return Ending.SUCCEEDED, "published", None
    if evidence.stop is not None:
        return evidence.stop.ending, evidence.stop.what, None
    fallen = [end for end in evidence.ended if end.has_fallen]
    if fallen:
        cause = min(fallen, key=lambda end: (*severity(end.verdict(evidence.oom_kills)[0]), end.rank))
        ending, what = cause.verdict(evidence.oom_kills)
        returned = [str(end.rank) for end in evidence.ended if not end.has_fallen]
        if is_symptom(ending) and returned:
            what += f"; rank {', '.join(returned)} had returned before"
        return ending, what, cause.failure
    if evidence.has_rank_0:
        return Ending.UNPUBLISHED, "rank 0: the process ended with exit code 0 and published nothing", None
    return Ending.SUCCEEDED, "its ranks returned; that counts if rank 0 publishes", None


def is_explained(ended: Sequence[RankEnd]) -> bool:
    """Whether a rank fell for a reason of its own."""
    return any(end.has_fallen and not is_symptom(end.verdict()[0]) for end in ended)


def _published(evidence: Evidence) -> str:
    if evidence.returncode == 0:
        return "published"
    afterwards = evidence.failure or evidence.stop
    return f"published, then: {afterwards.what if afterwards else describe(evidence.returncode)}"
