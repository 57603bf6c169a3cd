"""All ranks of one host, from start to the last of their children."""

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from infra.supervise.placement import Placement
from infra.supervise.processes import LINUX, adopt_orphans, state_of, wait_until
from infra.supervise.rank_log import RankLogs
from infra.supervise.wake_up import WakeUp
from infra.supervise.worker_process import Usage, WorkerProcess

DUMP_WAIT_S = 0.5  # faulthandler writes within milliseconds, from the signal handler itself
_KILL_DEADLINE_S = 10.0
_VMSTAT = Path("/proc/vmstat")


class Ranks:
    """The workers that this process parents, in the order of their ranks. Starts them."""

    def __init__(self, spec_url: str, placement: Placement) -> None:
        self.placement = placement
        self.wake_up = WakeUp()
        self._oom_kills_before = _oom_kills()
        self._childless = False
        adopt_orphans()
        self._logs = RankLogs() if placement.ranks > 1 else None
        self._workers = [self._start(spec_url, local_rank) for local_rank in range(placement.local_ranks)]
        self._by_pid = {worker.pid: worker for worker in self._workers}
        if self._logs is not None:
            self._logs.start()

    def __iter__(self) -> Iterator[WorkerProcess]:
        return iter(self._workers)

    @property
    def alive(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers if worker.alive]

    def wait(self, timeout_s: float) -> set[int]:
        """Sleep until a beat, a signal, a ring or the time-out; give the signals that came."""
        heard = [worker.pulse.descriptor for worker in self._workers if worker.alive and worker.pulse.is_open]
        select.select([*heard, self.wake_up.descriptor], [], [], max(0.0, timeout_s))
        signals = self.wake_up.signals()
        self._reap()
        return signals

    def wait_for_end(self, timeout_s: float) -> bool:
        """Wait for all workers; True if they have ended."""
        deadline = time.monotonic() + timeout_s
        while self.alive and (left := deadline - time.monotonic()) > 0:
            select.select([self.wake_up.descriptor], [], [], left)
            self.wake_up.signals()
            self._reap()
        return not self.alive

    def dump_stacks(self) -> None:
        """Have each worker print the stack of every thread to the log, and say of each what the kernel says of it."""
        alive = self.alive
        who = "of the worker's threads" if self.placement.ranks == 1 else f"of ranks {', '.join(str(worker.rank) for worker in alive)}"
        print(f"supervisor: the stacks {who}, newest call first:", file=sys.stderr, flush=True)
        for worker in alive:
            if (state := state_of(worker.pid)) in ("stopped", "waiting for a device"):
                print(f"supervisor: rank {worker.rank} (process {worker.pid}) can't show its stack: {state}", file=sys.stderr, flush=True)
            worker.send(signal.SIGUSR1)
        self.wait_for_end(DUMP_WAIT_S)

    def stop(self, grace_s: float) -> None:
        """End all groups: politely, then not. Returns when every worker is reaped."""
        for worker in self._workers:
            worker.send_to_group(signal.SIGTERM)
        if not self.wait_for_end(grace_s):
            for worker in self.alive:
                worker.send_to_group(signal.SIGKILL)
        while not self.wait_for_end(60.0):
            stuck = ", ".join(str(worker.pid) for worker in self.alive)
            print(
                f"supervisor: process {stuck} does not die (uninterruptible I/O?); its device is not free, waiting",
                file=sys.stderr,
                flush=True,
            )

    def end_the_rest(self) -> None:
        """After the workers' end: kill and reap whatever they left, and copy the last of what was printed."""
        for worker in self._workers:
            if worker.has_group():
                print(f"supervisor: rank {worker.rank} left processes behind; killing them", file=sys.stderr, flush=True)
                worker.group.kill()
        self._reap()
        if LINUX and not self._childless:
            wait_until(self._killed_adopted, _KILL_DEADLINE_S)
        if self._logs is not None:
            self._logs.close()

    def usage(self) -> Usage:
        """Summed time, largest memory."""
        return Usage(sum(worker.usage.cpu_s for worker in self._workers), max(worker.usage.max_rss_bytes for worker in self._workers))

    def oom_kills(self) -> int:
        """Processes that the kernel killed for memory while the workers ran, on the whole machine."""
        return _oom_kills() - self._oom_kills_before

    def _start(self, spec_url: str, local_rank: int) -> WorkerProcess:
        rank, told = self.placement.rank(local_rank), self.placement.environment(local_rank)
        if self._logs is None:
            return WorkerProcess(spec_url, rank, told)
        log = self._logs.open(rank)
        try:
            return WorkerProcess(spec_url, rank, told, log)
        finally:
            os.close(log)

    def _reap(self) -> None:
        """Workers, and orphans of theirs that the kernel gave to this process."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return
            if pid == 0:
                return
            if (worker := self._by_pid.get(pid)) is not None:
                worker.reaped(status, used)

    def _killed_adopted(self) -> bool:
        """Kill the orphans that left their worker's group; True once none is left."""
        import psutil  # 50 ms, and only an abnormal end needs it

        for child in psutil.Process().children(recursive=True):
            child.kill()
        self._reap()
        return self._childless


def _oom_kills() -> int:
    try:
        rows = dict(line.split() for line in _VMSTAT.read_text().splitlines())
    except OSError:
        return 0
    return int(rows.get("oom_kill", 0))
