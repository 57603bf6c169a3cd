"""The loop of a supervisor: sleeps until something happens, and decides whether that is the end."""

import signal
import time

from infra.dispatch.endings import Ending
from infra.dispatch.job import Spec
from infra.supervise.clocks import Clocks, sentence
from infra.supervise.lease_keeper import LeaseKeeper
from infra.supervise.memory import MemoryWatch
from infra.supervise.peers import PeerWatch
from infra.supervise.ranks import Ranks
from infra.supervise.sight import is_cancelled, is_published
from infra.supervise.verdict import CLOCKS, RankEnd, Stop, is_explained

SAME_MOMENT_S = 1.0  # ranks that fell silent so close together can't be told apart: one waited for the other
SETTLE_S = 2.0  # how long a symptom waits for its cause: a process that dumps core ends long after its peers noticed
_ASKED_TO_STOP = {signal.SIGTERM, signal.SIGINT}


def ended(ranks: Ranks) -> tuple[RankEnd, ...]:
    """The ranks that are gone, and what they said."""
    return tuple(RankEnd(worker.rank, worker.returncode, worker.pulse.failure) for worker in ranks if worker.returncode is not None)


class Watch:
    """Watches the ranks of one host.

    Args:
        keeper: of the lease; None on a host that doesn't hold it.
        peers: the gang's other hosts; None where there are none.
    """

    def __init__(self, spec: Spec, ranks: Ranks, keeper: LeaseKeeper | None, peers: PeerWatch | None) -> None:
        self._spec, self._ranks, self._keeper, self._peers = spec, ranks, keeper, peers
        limits = spec.job.timeouts
        self._clocks = {worker.rank: Clocks(limits.start_grace_s, limits.step_s, limits.wall_s, worker.started_s) for worker in ranks}
        limit_bytes = spec.job.resources.memory_bytes * ranks.placement.hosts_here
        self._memory = MemoryWatch([worker.group.pgid for worker in ranks], limit_bytes, time.monotonic())
        self._settled_s = float("inf")
        self._returned = 0

    def until_something_ends(self) -> Stop | None:
        """Why the supervisor must end the ranks; None if one fell, or all that mattered have returned."""
        if is_cancelled(self._spec):
            return Stop(Ending.CANCELLED, "it was cancelled before it started")
        while True:
            signals = self._ranks.wait(self._next_deadline_s() - time.monotonic())
            now_s = time.monotonic()
            for worker in self._ranks:
                if worker.hear():
                    self._clocks[worker.rank] = self._clocks[worker.rank].stepped(now_s)
            if self._is_over(now_s):
                return None
            if (stop := self._stop(signals, now_s)) is not None:
                return stop

    def _is_over(self, now_s: float) -> bool:
        gone = ended(self._ranks)
        if not self._ranks.alive:
            return True
        if any(end.has_fallen for end in gone):
            self._settled_s = min(self._settled_s, now_s + SETTLE_S)
            return is_explained(gone) or now_s >= self._settled_s
        if any(end.rank == 0 for end in gone) or (self._peers is not None and self._peers.succeeded):
            return True
        if len(gone) > self._returned:
            self._returned = len(gone)
            return is_published(self._spec)  # by somebody else, perhaps: ranks that saw it did not even begin
        return False

    def _stop(self, signals: set[int], now_s: float) -> Stop | None:
        if self._keeper is not None and self._keeper.lost is not None:
            return Stop(Ending.LEASE_LOST, self._keeper.lost)
        if signals & _ASKED_TO_STOP:
            return self._asked_to_stop()
        if self._peers is not None and self._peers.fallen is not None:
            fallen = self._peers.fallen
            return Stop(Ending.PEER_LOST, f"host {fallen.host} fell first: {fallen.end.what}", fallen.end.ending in CLOCKS)
        if (excess := self._memory.excess(now_s)) is not None:
            return Stop(Ending.OUT_OF_MEMORY, excess)
        return self._expired(now_s)

    def _asked_to_stop(self) -> Stop:
        if is_cancelled(self._spec):
            return Stop(Ending.CANCELLED, "it was cancelled")
        return Stop(Ending.PREEMPTED, "the supervisor was told to stop (SIGTERM) and nobody had cancelled the job")

    def _expired(self, now_s: float) -> Stop | None:
        """The ranks whose clock ran out first: that stopped before their peers, who then waited for them in vain."""
        alive = [self._clocks[worker.rank] for worker in self._ranks.alive]
        first = min(alive, key=lambda clocks: clocks.next_deadline_s())
        expired = first.expired(now_s)
        if expired is None:
            return None
        if expired == "wall":
            return Stop(Ending.TIMED_OUT, sentence(expired, first), show_stacks=True)
        return Stop(Ending.STALLED, f"{self._silent_with(first)}{sentence(expired, first)}", show_stacks=True)

    def _silent_with(self, first: Clocks) -> str:
        """Which ranks of a gang fell silent with the first one."""
        if self._ranks.placement.ranks == 1:
            return ""
        until_s = first.next_deadline_s() + SAME_MOMENT_S
        silent = [worker.rank for worker in self._ranks.alive if self._clocks[worker.rank].next_deadline_s() <= until_s]
        return f"rank{'s' if len(silent) > 1 else ''} {', '.join(map(str, silent[:8]))}{' ...' if len(silent) > 8 else ''}: "

    def _next_deadline_s(self) -> float:
        clocks = (self._clocks[worker.rank].next_deadline_s() for worker in self._ranks.alive)
        return min(*clocks, self._settled_s, self._memory.next_look_s)
