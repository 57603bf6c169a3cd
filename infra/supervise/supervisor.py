"""The parent of one host's ranks: watches progress, clocks, memory, lease and peers; ends the ranks; says how they ended."""

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from infra.artifacts.lease import Lease
from infra.dispatch.endings import COSTS, EXIT_CODES, End, Ending
from infra.dispatch.gang import declare_fallen, record_end
from infra.dispatch.job import Spec, read_spec
from infra.storage.errors import StorageError
from infra.supervise.lease_keeper import LeaseKeeper
from infra.supervise.peers import INTERVAL_S, PeerWatch
from infra.supervise.ranks import Ranks
from infra.supervise.sight import is_published, say
from infra.supervise.state import ENDED_NAME, write_whole
from infra.supervise.verdict import Evidence, GangEvidence, RankEnd, Stop, gang_verdict, verdict
from infra.supervise.watch import Watch, ended
from infra.supervise.worker_process import WorkerProcess

PEERS_NOTICE_S = 2 * INTERVAL_S  # in which other hosts show their stacks, too: what is killed here would change them
STORAGE_PATIENCE_S = 300.0  # how long the end of an attempt waits for storage that is away
_AT_ONCE = (Ending.PEER_LOST, Ending.OUT_OF_MEMORY)  # nothing that such a rank could still do counts


@dataclass
class Supervisor:
    """Watches the ranks of one host of one attempt."""

    spec: Spec
    ranks: Ranks

    def run(self) -> End:
        """Watch until the workers are gone and nothing that they started is left; give the end."""
        placement, ring = self.ranks.placement, self.ranks.wake_up.ring
        keeper = peers = None
        with ExitStack() as stack:
            stack.callback(self.ranks.end_the_rest)
            if placement.host == 0:
                keeper = LeaseKeeper(self._reopen_lease, interval_s=self.spec.job.timeouts.lease_beat_s, on_lost=ring)
                stack.callback(keeper.stop)
            if placement.hosts > 1:
                peers = PeerWatch(placement.directory, on_news=ring)
                stack.callback(peers.stop)
            stop = Watch(self.spec, self.ranks, keeper, peers).until_something_ends()
            by_themselves = ended(self.ranks)
            self._declare(by_themselves, stop)
            self._finish(by_themselves, stop)
        for worker in self.ranks:
            worker.hear()
        return self._end(by_themselves, stop)

    def _declare(self, by_themselves: tuple[RankEnd, ...], stop: Stop | None) -> None:
        """Tell the other hosts before anything is killed here: whoever falls first is the cause."""
        placement = self.ranks.placement
        has_fallen = stop.ending is not Ending.PEER_LOST if stop is not None else any(rank.has_fallen for rank in by_themselves)
        if placement.hosts == 1 or not has_fallen:
            return
        try:
            declare_fallen(placement.directory, placement.host, self._judged(by_themselves, stop, published=False))
        except StorageError as error:
            say(f"can't tell the gang's other hosts: {error}")

    def _finish(self, by_themselves: tuple[RankEnd, ...], stop: Stop | None) -> None:
        """End what still runs."""
        alive, grace_s = self.ranks.alive, self.spec.job.timeouts.kill_grace_s
        if not alive:
            return
        if stop is not None:
            say(f"stopping {_named(alive)}: {stop.what}")
            if stop.show_stacks:
                self.ranks.dump_stacks()
                if self.ranks.placement.hosts > 1 and stop.ending is not Ending.PEER_LOST:
                    self.ranks.wait_for_end(PEERS_NOTICE_S)
            self.ranks.stop(0.0 if stop.ending in _AT_ONCE else grace_s)
            return
        if any(rank.has_fallen for rank in by_themselves):
            say(f"stopping {_named(alive)}: {self._judged(by_themselves, None, published=False).what}")
        elif not self.ranks.wait_for_end(grace_s):
            say(f"stopping {_named(self.ranks.alive)}: the gang's work is over, and {grace_s:g} s later that had not returned")
        self.ranks.stop(0.0)

    def _end(self, by_themselves: tuple[RankEnd, ...], stop: Stop | None) -> End:
        end = self._judged(by_themselves, stop, published=is_published(self.spec, patience_s=STORAGE_PATIENCE_S))
        usage = self.ranks.usage()
        measures = {
            "wall_s": time.monotonic() - min(worker.started_s for worker in self.ranks),
            "cpu_s": usage.cpu_s,
            "max_rss_bytes": float(usage.max_rss_bytes),
        }
        steps, saved = min(worker.steps for worker in self.ranks), max(worker.pulse.saved for worker in self.ranks)
        return end.model_copy(update={"steps": steps, "saved": saved, "observations": measures})

    def _judged(self, by_themselves: tuple[RankEnd, ...], stop: Stop | None, *, published: bool) -> End:
        placement, oom_kills = self.ranks.placement, self.ranks.oom_kills()
        if placement.ranks > 1:
            found = GangEvidence(published, by_themselves, stop, has_rank_0=placement.host == 0, oom_kills=oom_kills)
            ending, what, failure = gang_verdict(found)
            return End(ending=ending, what=what, tail=failure.tail if failure is not None else ())
        (rank,) = ended(self.ranks)  # its last word counts even if it was being stopped
        ending, what = verdict(Evidence(published, rank.returncode, stop, rank.failure, oom_kills))
        return End(ending=ending, what=what, tail=rank.failure.tail if rank.failure and ending is Ending(rank.failure.ending) else ())

    def _reopen_lease(self) -> Lease:
        return Lease.reopen(self.spec.job.address, self.spec.number, self.spec.uid)


def supervise(spec_url: str, ranks: Ranks, state: Path | None, *, concludes: bool) -> int:
    """Supervise to the end, record it, and give the exit code of the contract.

    Args:
        concludes: whether this host's end is the attempt's. A cluster's engine may know better (a time limit, an
            operator's cancel), and only its dispatcher hears that.
    """
    try:
        spec = read_spec(spec_url)
    except (OSError, ValueError):
        ranks.stop(grace_s=0.0)
        ranks.end_the_rest()
        raise
    end = Supervisor(spec, ranks).run()
    say(f"{end.ending.value}: {end.what}")
    _record(spec, ranks, end, state, concludes)
    return EXIT_CODES[end.ending]


def _record(spec: Spec, ranks: Ranks, end: End, state: Path | None, concludes: bool) -> None:
    """Write the end where it is looked for. The engine knows it too, so storage that refuses costs only the record."""
    placement = ranks.placement
    try:
        if concludes and placement.hosts == 1:  # otherwise it is over when all hosts are, and only its dispatcher sees that
            Lease(spec.job.address, spec.number, spec.uid).end(end.ending.value, json.loads(end.model_dump_json()))
        if state is None:
            record_end(spec.directory, placement.host, end)
    except StorageError as error:
        say(f"the attempt's end is not recorded in storage: {error}; {COSTS[end.ending].advice}")
    if state is not None:
        write_whole(state / ENDED_NAME, end.model_dump_json())


def _named(workers: list[WorkerProcess]) -> str:
    if len(workers) == 1 and workers[0].rank == 0:
        return "the worker"
    return f"rank{'s' if len(workers) > 1 else ''} {', '.join(str(worker.rank) for worker in workers)}"
