"""The parent of a worker: watches progress, three clocks and the lease; ends the worker; says how it ended."""

import json
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from infra.artifacts.lease import Lease
from infra.artifacts.manifest import MANIFEST_NAME
from infra.dispatch.endings import COSTS, EXIT_CODES, End, Ending
from infra.dispatch.job import Spec, is_cancelled, read_spec
from infra.storage.errors import StorageError
from infra.storage.objects import read_or_none
from infra.supervise.clocks import Clocks, sentence
from infra.supervise.lease_keeper import LeaseKeeper
from infra.supervise.state import ENDED_NAME, write_whole
from infra.supervise.verdict import Evidence, Stop, verdict
from infra.supervise.worker_process import WorkerProcess

STORAGE_PATIENCE_S = 300.0  # how long the end of an attempt waits for storage that is away
_ASKED_TO_STOP = {signal.SIGTERM, signal.SIGINT}


@dataclass
class Supervisor:
    """Watches one worker of one attempt."""

    spec: Spec
    worker: WorkerProcess
    steps: int = 0

    def run(self) -> End:
        """Watch until the worker is gone and nothing of its group is left; give the end."""
        timeouts = self.spec.job.timeouts
        keeper = LeaseKeeper(self._reopen_lease, interval_s=timeouts.lease_beat_s, on_lost=self.worker.wake)
        try:
            stop = self._watch(keeper)
            if stop is not None:
                self._stop(stop)
        finally:
            keeper.stop()
            self.worker.end_group()
        self._hear()
        return self._end(stop)

    def _watch(self, keeper: LeaseKeeper) -> Stop | None:
        timeouts = self.spec.job.timeouts
        clocks = Clocks(timeouts.start_grace_s, timeouts.step_s, timeouts.wall_s, started_s=self.worker.started_s)
        if self._is_cancelled():
            return Stop(Ending.CANCELLED, "it was cancelled before it started")
        while True:
            signals = self.worker.wait(clocks.next_deadline_s() - time.monotonic())
            if self._hear():
                clocks = clocks.stepped(time.monotonic())
            if self.worker.returncode is not None:
                return None
            if keeper.lost is not None:
                return Stop(Ending.LEASE_LOST, keeper.lost)
            if signals & _ASKED_TO_STOP:
                return self._asked_to_stop()
            if (expired := clocks.expired(time.monotonic())) is not None:
                return Stop(Ending.TIMED_OUT if expired == "wall" else Ending.STALLED, sentence(expired, clocks))

    def _hear(self) -> int:
        beats = self.worker.pulse.drain()
        self.steps += beats
        return beats

    def _asked_to_stop(self) -> Stop:
        if self._is_cancelled():
            return Stop(Ending.CANCELLED, "it was cancelled")
        return Stop(Ending.PREEMPTED, "the supervisor was told to stop (SIGTERM) and nobody had cancelled the job")

    def _stop(self, stop: Stop) -> None:
        print(f"supervisor: stopping the worker: {stop.what}", file=sys.stderr, flush=True)
        if stop.ending in (Ending.STALLED, Ending.TIMED_OUT):
            self.worker.dump_stacks()
        self.worker.stop(self.spec.job.timeouts.kill_grace_s)

    def _end(self, stop: Stop | None) -> End:
        assert self.worker.returncode is not None
        failure = self.worker.pulse.failure
        evidence = Evidence(self._is_published(), self.worker.returncode, stop, failure, self.worker.oom_kills())
        ending, what = verdict(evidence)
        return End(
            ending=ending,
            what=what,
            tail=failure.tail if failure is not None and ending is Ending(failure.ending) else (),
            steps=self.steps,
            observations={
                "wall_s": time.monotonic() - self.worker.started_s,
                "cpu_s": self.worker.usage.cpu_s,
                "max_rss_bytes": float(self.worker.usage.max_rss_bytes),
            },
        )

    def _reopen_lease(self) -> Lease:
        return Lease.reopen(self.spec.job.address, self.spec.number, self.spec.uid)

    def _is_cancelled(self) -> bool:
        try:
            return is_cancelled(self.spec.job.address, self.spec.number)
        except StorageError as error:
            print(f"supervisor: can't see whether the job was cancelled: {error}", file=sys.stderr, flush=True)
            return False

    def _is_published(self) -> bool:
        """Ask storage for `STORAGE_PATIENCE_S`: to call a published artifact lost would be wrong, so would be hanging for ever."""
        deadline = time.monotonic() + STORAGE_PATIENCE_S
        while True:
            try:
                return read_or_none(f"{self.spec.job.address}/{MANIFEST_NAME}") is not None
            except StorageError as error:
                print(f"supervisor: can't see whether the artifact is published: {error}", file=sys.stderr, flush=True)
                if time.monotonic() >= deadline:
                    return False
                time.sleep(1.0)


def supervise(spec_url: str, worker: WorkerProcess, state: Path | None) -> int:
    """Supervise to the end, record it, and give the exit code of the contract."""
    try:
        spec = read_spec(spec_url)
    except (OSError, ValueError):
        worker.stop(grace_s=0.0)
        raise
    end = Supervisor(spec, worker).run()
    print(f"supervisor: {end.ending.value}: {end.what}", file=sys.stderr, flush=True)
    _record(spec, end)
    if state is not None:
        write_whole(state / ENDED_NAME, end.model_dump_json())
    return EXIT_CODES[end.ending]


def _record(spec: Spec, end: End) -> None:
    """Write the end beside the lease. The engine knows it too, so storage that refuses costs only the record."""
    try:
        Lease(spec.job.address, spec.number, spec.uid).end(end.ending.value, json.loads(end.model_dump_json()))
    except StorageError as error:
        print(f"supervisor: the attempt's end is not recorded in storage: {error}; {COSTS[end.ending].advice}", file=sys.stderr, flush=True)
