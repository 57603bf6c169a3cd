"""`python -m tests.ops.extract.fuzz --cases 20000 --seed 0`: damaged files on the extraction's own path, under limits.

Every case is read by a worker process as the program would read it, to rows of the two schemas, with a limit on its memory
(RLIMIT_DATA; the PDF parser's process has its own) and on CPU-seconds, so that a busy machine finds nothing that isn't there.
A case must end in documents and typed rejects. One that ends its worker, raises, or goes beyond a limit is kept below `--keep`
and makes the exit code 1; `--only NUMBER` does it again in this process.
"""

import argparse
import contextlib
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, field
from io import BytesIO
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from ops.dataflow.budget import capped_memory
from ops.extract.config import ExtractConfig
from ops.extract.documents import DOCUMENT_SCHEMA
from ops.extract.interpret import Document, Interpreter
from ops.extract.records import read_records
from ops.extract.rejects import REJECT_SCHEMA, Reason, Reject, reject_row
from ops.extract.row_buffer import RowBuffer
from ops.units import MiB
from tests.ops.extract.fuzz_cases import Case, case_of, originals_of
from tests.real.real_data import REAL_DATA

POLL_S = 0.25
STALL_S = 60.0  # without a reply and without CPU time to show for it
ENDED = "its worker ended"


@dataclass(frozen=True)
class Plan:
    """Which cases, and what each may take."""

    cases: range
    seed: int = 0
    data: Path | None = REAL_DATA if REAL_DATA.is_dir() else None
    limit_cpu_s: float = 5.0
    memory_bytes: int = 1024 * MiB

    def case(self, number: int) -> Case:
        return case_of(originals_of(self.data), self.seed, number)


@dataclass(frozen=True)
class Ended:
    """What became of one case. `failure` is None where all went as promised."""

    number: int
    outcomes: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0
    peak_mib: int = 0
    failure: str | None = None


Reader = Callable[[Case, Interpreter], Counter[str]]


def read_case(case: Case, interpreter: Interpreter) -> Counter[str]:
    """Documents and rejects by reason, after they became rows.

    Raises:
        MemoryError: a reject's reason was the want of memory.
    """
    documents, rejects = (RowBuffer(schema, _drop) for schema in (DOCUMENT_SCHEMA, REJECT_SCHEMA))
    found = Counter[str]()
    for item in _items(case, interpreter):
        if isinstance(item, Reject):
            if item.detail.startswith("MemoryError"):
                raise MemoryError(item.detail)
            rejects.add(reject_row(item))
            found[Reason(item.reason)] += 1
        else:
            documents.add(astuple(item), len(item.text.encode()))
            found["document"] += 1
    documents.flush()
    rejects.flush()
    return found


def _items(case: Case, interpreter: Interpreter) -> Iterator[Document | Reject]:
    if case.media_type is not None:
        yield interpreter.of_payload("case:", case.media_type, case.data)
        return
    for record in read_records(BytesIO(case.data), interpreter.max_block_bytes):
        yield interpreter.of_record(record, "warc/case")


def _drop(batch: pa.RecordBatch) -> None:
    assert batch.num_rows


def fuzz(plan: Plan, workers: int = 1, read: Reader = read_case) -> Iterator[Ended]:
    """Do every case, in processes that are replaced when they end or have to be ended."""
    numbers = iter(plan.cases)
    crew = [_Worker(plan, read) for _ in range(min(workers, len(plan.cases)))]
    try:
        working = [worker for worker in crew if worker.give(numbers)]
        while working:
            ready = wait([worker.connection for worker in working], POLL_S)
            for worker in list(working):
                ended = worker.told() if worker.connection in ready else worker.overdue()
                if ended is None:
                    continue
                yield ended
                if not worker.give(numbers):
                    working.remove(worker)
    finally:
        for worker in crew:
            worker.end()


class _Worker:
    """A process that reads one case after another."""

    def __init__(self, plan: Plan, read: Reader) -> None:
        self._plan, self._read = plan, read
        self._number = -1
        self._start()

    @property
    def _pid(self) -> int:
        return self._process.pid or 0

    def give(self, numbers: Iterator[int]) -> bool:
        """Hand it the next case; False if none is left."""
        number = next(numbers, None)
        if number is None:
            return False
        self._number, self._given_s, self._spent_s = number, time.monotonic(), _cpu_s(self._pid)
        with contextlib.suppress(BrokenPipeError):  # it has ended, which its silence says next
            self.connection.send(number)
        return True

    def told(self) -> Ended:
        """What it says of its case; that it ended is an answer too."""
        try:
            ended: Ended = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            code = self._process.exitcode
            self._start()
            return Ended(self._number, failure=f"{ENDED} with exit code {code}")
        return ended

    def overdue(self) -> Ended | None:
        """The end of a case that takes too long."""
        if not self._process.is_alive():
            return None  # what it said last is still in the pipe
        spent = _cpu_s(self._pid) - self._spent_s
        if spent <= self._plan.limit_cpu_s * 2 and (spent > POLL_S or time.monotonic() - self._given_s <= STALL_S):
            return None
        self.end()
        self._start()
        return Ended(self._number, cpu_s=spent, failure=f"no end after {spent:.1f} CPU-seconds")

    def end(self) -> None:
        for child in _children(self._pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(child).kill()
        self._process.kill()
        self._process.join()
        self.connection.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_serve, args=(theirs, self._plan, self._read), daemon=False)
        self._process.start()
        theirs.close()
        self.connection.recv()  # it has read the originals


def _cpu_s(pid: int) -> float:
    """CPU-seconds of a process and of its children, the ended ones too."""
    spent = 0.0
    for one in (pid, *_children(pid)):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent += sum(psutil.Process(one).cpu_times()[: 4 if one == pid else 2])
    return spent


def _children(pid: int) -> list[int]:
    """Those that its main thread started."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # not Linux, or it has ended
        return [child.pid for child in psutil.Process(pid).children()] if psutil.pid_exists(pid) else []


def _serve(connection: Connection, plan: Plan, read: Reader) -> None:
    originals_of(plan.data)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with Interpreter(ExtractConfig()) as interpreter, capped_memory(plan.memory_bytes), contextlib.suppress(EOFError, BrokenPipeError):
        connection.send("ready")
        while True:
            connection.send(_ended(plan, connection.recv(), read, interpreter))


def _ended(plan: Plan, number: int, read: Reader, interpreter: Interpreter) -> Ended:
    case = plan.case(number)
    me = os.getpid()
    for process in (me, *_children(me)):
        with contextlib.suppress(OSError):
            Path(f"/proc/{process}/clear_refs").write_text("5")  # the peak begins anew
    before = _cpu_s(me)
    outcomes, failure = Counter[str](), None
    try:
        outcomes = read(case, interpreter)
        failure = None if outcomes or case.media_type is None else "neither a document nor a reject"
    except MemoryError:
        failure = f"wants more than {plan.memory_bytes >> 20} MiB"
    except Exception as error:
        traceback.print_exc()
        failure = f"{type(error).__name__}: {error}"
    cpu_s = _cpu_s(me) - before
    if failure is None and cpu_s > plan.limit_cpu_s:
        failure = f"took {cpu_s:.1f} CPU-seconds"
    peak = max(_peak_mib(process) for process in (me, *_children(me)))
    return Ended(number, outcomes, cpu_s, peak, failure)


def _peak_mib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


@dataclass
class Table:
    """What is known of every kind."""

    plan: Plan
    cases: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    slowest_s: dict[str, float] = field(default_factory=dict)
    peak_mib: dict[str, int] = field(default_factory=dict)
    failures: list[Ended] = field(default_factory=list)

    @classmethod
    def of(cls, plan: Plan, ended: Iterable[Ended], tell: Callable[["Table", Ended], Any] = lambda *_: None) -> "Table":
        table = cls(plan)
        for one in ended:
            table.add(one)
            tell(table, one)
        return table

    def add(self, ended: Ended) -> None:
        kind = kind_of(ended.number)
        self.cases[kind] += 1
        self.outcomes.setdefault(kind, Counter()).update(ended.outcomes)
        self.slowest_s[kind] = max(self.slowest_s.get(kind, 0.0), ended.cpu_s)
        self.peak_mib[kind] = max(self.peak_mib.get(kind, 0), ended.peak_mib)
        if ended.failure is not None:
            self.failures.append(ended)

    def __str__(self) -> str:
        lines = ["| kind | cases | documents | rejects | slowest | peak |", "|---|---|---|---|---|---|"]
        for kind, cases in sorted(self.cases.items()):
            rejects = ", ".join(f"{reason} {count:,}" for reason, count in self.outcomes[kind].most_common() if reason != "document")
            documents = f"{self.outcomes[kind]['document']:,}"
            lines.append(f"| {kind} | {cases:,} | {documents} | {rejects} | {self.slowest_s[kind]:.1f} s | {self.peak_mib[kind]} MiB |")
        lines += [f"case {ended.number} ({kind_of(ended.number)}): {ended.failure}" for ended in self.failures]
        return "\n".join(lines)


def kind_of(number: int) -> str:
    from tests.ops.extract.fuzz_cases import KINDS

    return tuple(KINDS)[number % len(KINDS)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Damaged files on the extraction's own path, under limits of time and memory.")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit-s", type=float, default=5.0, help="CPU-seconds of one case")
    parser.add_argument("--memory-mib", type=int, default=1024, help="of a worker")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "seaway-fuzz", help="where cases that fail are kept")
    parser.add_argument("--only", type=int, help="do this case alone, in this process")
    options = parser.parse_args()
    cases = range(options.first, options.first + options.cases)
    plan = Plan(cases, options.seed, limit_cpu_s=options.limit_s, memory_bytes=options.memory_mib * MiB)
    if options.only is not None:
        with Interpreter(ExtractConfig()) as interpreter:
            print(_ended(plan, options.only, read_case, interpreter))
        return 0

    def tell(table: Table, ended: Ended) -> None:
        if ended.failure is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"seed-{plan.seed}-case-{ended.number}").write_bytes(plan.case(ended.number).data)
            print(f"case {ended.number} ({kind_of(ended.number)}): {ended.failure}", file=sys.stderr, flush=True)
        if table.cases.total() % 1_000 == 0:
            print(f"{table.cases.total():,} cases, {len(table.failures)} failed", file=sys.stderr, flush=True)

    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    table = Table.of(plan, fuzz(plan, options.workers), tell)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(table)
    spent = used.ru_utime + used.ru_stime - began.ru_utime - began.ru_stime
    print(f"{table.cases.total():,} cases of seed {plan.seed} in {spent:.0f} CPU-seconds; {len(table.failures)} failed")
    return 1 if table.failures else 0


if __name__ == "__main__":
    sys.exit(main())
