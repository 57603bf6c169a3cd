"""The embedded engine's workers: processes of this machine that do one shard after another.

With one worker that is this very process. With several, a worker that dies takes nothing along: its shard is done again by
another, and a shard that has ended `LOSSES` of them is named and left alone.
"""

import contextlib
import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from infra.supervise.processes import PARENT_VARIABLE, die_with_parent
from ops.dataflow.budget import capped_memory
from ops.dataflow.commits import Commit
from ops.dataflow.errors import Poison, WorkersLostError
from ops.dataflow.shard import Shard
from ops.dataflow.work import Beat, Order, work

LOSSES = 3  # one preempted worker is bad luck; the third on the same shard is the shard
STOP_S = 5.0  # how long an idle worker may take to end
THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS")


def work_here(order: Order, shards: Sequence[Shard], beat: Beat) -> Iterator[Commit | Poison]:
    """Do the shards in this process, in order."""
    for shard in shards:
        yield work(order, shard, beat)


def work_in_processes(order: Order, shards: Sequence[Shard], workers: int, memory_bytes: int, beat: Beat) -> Iterator[Commit | Poison]:
    """Do the shards in `workers` processes, and tell of each as it is done.

    Args:
        memory_bytes: of each worker; the kernel refuses it more.

    Raises:
        WorkersLostError: workers die one after the other, and nothing gets done.
        StorageError: as a worker met it.
    """
    crew = _Crew(lambda: _Worker.start(order, workers, memory_bytes), deque(shards))
    with contextlib.closing(crew):
        for _ in range(min(workers, len(shards))):
            crew.hire()
        while crew.is_busy():
            for worker, told in crew.hear():
                match told:
                    case int():
                        beat(told)
                    case Commit() | Poison():
                        crew.done(worker)
                        yield told
                    case BaseException():
                        raise told
                    case _:
                        shard, losses = crew.replace(worker)
                        if crew.losses_in_a_row > LOSSES * workers:
                            raise WorkersLostError(
                                f"{order.stage}: {crew.losses_in_a_row} workers in a row {worker.end()}; nothing gets done: "
                                "look at this machine's memory and at the job's log"
                            )
                        if losses == LOSSES:
                            yield Poison(shard.name, None, (), f"{LOSSES} workers of {memory_bytes >> 20} MiB {worker.end()} on it")


class _Crew:
    """Who works on what, and what waits."""

    def __init__(self, start: Callable[[], "_Worker"], waiting: deque[Shard]) -> None:
        self.losses_in_a_row = 0
        self._start, self._waiting = start, waiting
        self._working: dict[Connection, tuple[_Worker, Shard]] = {}
        self._idle: list[_Worker] = []
        self._losses: Counter[int] = Counter()

    def hire(self) -> None:
        self._idle.append(self._start())

    def is_busy(self) -> bool:
        """Give what waits to who is idle; whether anything is still to be done."""
        while self._idle and self._waiting:
            worker, shard = self._idle.pop(), self._waiting.popleft()
            with contextlib.suppress(BrokenPipeError):  # it died: its end of the line says so next
                worker.connection.send(shard)
            self._working[worker.connection] = worker, shard
        return bool(self._working)

    def hear(self) -> list[tuple["_Worker", Any]]:
        """What workers say; None from one that died."""
        ready = wait(list(self._working))
        return [(self._working[connection][0], _told(connection)) for connection in ready if isinstance(connection, Connection)]

    def done(self, worker: "_Worker") -> None:
        del self._working[worker.connection]
        self._idle.append(worker)
        self.losses_in_a_row = 0

    def replace(self, worker: "_Worker") -> tuple[Shard, int]:
        """Hire another in the place of one that died; its shard waits again, unless it has ended too many."""
        _, shard = self._working.pop(worker.connection)
        worker.process.join()
        self._losses[shard.index] += 1
        self.losses_in_a_row += 1
        if self._losses[shard.index] < LOSSES:
            self._waiting.append(shard)
        self.hire()
        return shard, self._losses[shard.index]

    def close(self) -> None:
        """Let idle workers go, and end the others."""
        for worker, _ in self._working.values():
            worker.process.kill()
        for worker in self._idle:
            worker.connection.close()
        for worker in (*self._idle, *(worker for worker, _ in self._working.values())):
            worker.process.join(STOP_S)
            worker.process.kill()
            worker.process.join()
            worker.connection.close()


@dataclass(frozen=True)
class _Worker:
    process: SpawnProcess
    connection: Connection

    @classmethod
    def start(cls, order: Order, workers: int, memory_bytes: int) -> "_Worker":
        context = multiprocessing.get_context("spawn")  # a fork would inherit the locks of threads that it has not
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, order, memory_bytes), daemon=True)
        threads = max(1, int(os.environ.get(THREAD_VARIABLES[0], os.cpu_count() or 1)) // workers)
        with _environment({PARENT_VARIABLE: str(os.getpid()), **dict.fromkeys(THREAD_VARIABLES, str(threads))}):
            process.start()
        theirs.close()
        return cls(process, ours)

    def end(self) -> str:
        """How it ended, as a verb."""
        code = self.process.exitcode or 0
        return f"were killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _serve(connection: Connection, order: Order, memory_bytes: int) -> None:
    """A worker's life: shards come, what became of them goes."""
    import pyarrow as pa

    die_with_parent()
    threads = int(os.environ[THREAD_VARIABLES[0]])
    pa.set_cpu_count(threads)
    with contextlib.suppress(EOFError, BrokenPipeError):  # nobody is left to work for
        while True:
            shard = connection.recv()
            try:
                with capped_memory(memory_bytes):
                    told: object = work(order, shard, connection.send)
            except Exception as error:
                told = error
            connection.send(told)


def _told(connection: Connection) -> Any:
    try:
        return connection.recv()
    except (EOFError, ConnectionResetError):
        return None


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables that a process which starts inside the block finds before its first import."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
