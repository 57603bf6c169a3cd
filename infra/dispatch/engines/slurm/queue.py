"""The queue as squeue shows it, looked at once for many polls.

    {state}/queue.lock   held while somebody asks Slurm
            queue.json   the last answer or failure, and when it was asked for and came, on this machine's monotonic clock

All dispatchers of a machine share one look, so a thousand jobs cost slurmctld one request in `queue_age_s`; and while
it hangs, they wait for one time-out and not each for its own after the others'.
"""

import fcntl
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.dispatch.backend import EngineUnavailable
from infra.storage.errors import storage_errors
from infra.supervise.state import write_whole

FORMAT = ",".join(f"{field}:|" for field in ("JobID", "State", "RestartCnt", "Name", "Comment", "Reason"))
OVER = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}
)
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})


@dataclass(frozen=True)
class Row:
    """One Slurm job. `comment` holds the attempt's uid: a job's number alone may come back after slurmctld lost its state."""

    id: str
    state: str
    restarts: int
    name: str
    comment: str
    reason: str

    @property
    def is_over(self) -> bool:
        """Nothing of it is left on any node: while something is, Slurm calls it COMPLETING."""
        return self.state in OVER

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING


class Queue:
    """Jobs that slurmctld remembers: waiting, running, and for a while (MinJobAge) those that are over.

    Args:
        state: a folder on a local disk, shared by the dispatchers of this machine.
        look: asks squeue.
        age_s: how old an answer may be.
    """

    def __init__(self, state: Path, look: Callable[[], str], age_s: float) -> None:
        self._state = state
        self._look = look
        self._age_s = age_s

    def jobs(self, name: str, *, not_before_s: float | None = None) -> list[Row]:
        """Jobs of a name, oldest first.

        Args:
            not_before_s: on `time.monotonic`; the look must not be older. None: than `queue_age_s`.
        """
        called_s = time.monotonic()
        limit_s = called_s - self._age_s if not_before_s is None else not_before_s
        with storage_errors("keep the last look at Slurm's queue in", str(self._state)):
            look = self._look_for(limit_s, called_s)
        if look.failure is not None:
            raise EngineUnavailable(look.failure)
        return sorted((row for row in look.rows if row.name == name), key=lambda row: int(row.id))

    def _look_for(self, limit_s: float, called_s: float) -> "_Look":
        self._state.mkdir(parents=True, exist_ok=True)
        with (self._state / "queue.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            look = self._remembered()
            return look if look is not None and look.serves(limit_s, called_s) else self._ask()

    def _ask(self) -> "_Look":
        asked_s = time.monotonic()
        try:
            look = _Look(asked_s, time.monotonic(), parse(self._look()))
        except EngineUnavailable as away:
            look = _Look(asked_s, time.monotonic(), [], str(away))
        write_whole(self._state / "queue.json", json.dumps(asdict(look)))
        return look

    def _remembered(self) -> "_Look | None":
        try:
            told = json.loads((self._state / "queue.json").read_text())
        except FileNotFoundError:
            return None
        return _Look(**{**told, "rows": [Row(**row) for row in told["rows"]]})


@dataclass(frozen=True)
class _Look:
    """One answer of squeue, or its failure."""

    asked_s: float
    answered_s: float
    rows: list[Row]
    failure: str | None = None

    def serves(self, limit_s: float, called_s: float) -> bool:
        """Whether it is recent enough. A failure serves only those who waited for it; a time to come is of an earlier boot."""
        if self.asked_s > time.monotonic():
            return False
        return self.asked_s >= limit_s if self.failure is None else self.answered_s >= called_s


def parse(text: str) -> list[Row]:
    """Rows of `squeue --noheader -O FORMAT`. A reason may hold anything, so it is last. Arrays are not ours."""
    return list(_rows(line.split("|", 5) for line in text.splitlines() if line.count("|") >= 6))


def _rows(lines: Iterable[list[str]]) -> Iterable[Row]:
    for job, state, restarts, name, comment, reason in lines:
        if job.isdigit():
            yield Row(job, state, int(restarts) if restarts.isdigit() else 0, name, comment, reason.removesuffix("|"))


def parse_account(text: str) -> Row | None:
    """The row of `sacct --noheader --parsable2 -o JobID,State`; a state may say who: `CANCELLED by 1000`."""
    for line in text.splitlines():
        job, _, state = line.partition("|")
        if job.isdigit() and state:
            return Row(job, state.split()[0], 0, "", "", "")
    return None
