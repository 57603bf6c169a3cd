"""Slurm as an engine: an attempt is a batch job of one supervisor a host, submitted by name and never requeued.

Three things make a submission safe to repeat, whoever dies or races: jobs are found by name and uid; of one name
only one runs at a time (`--dependency=singleton`); and the first to run becomes the attempt's holder by a conditional
create in its directory (`holder.py`), every other one ends at once.
"""

import fcntl
import os
import shutil
import sys
import time
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from infra.dispatch.backend import EngineState, Handle, JobRejected
from infra.dispatch.endings import End, Ending
from infra.dispatch.engines.slurm import script
from infra.dispatch.engines.slurm.commands import Commands
from infra.dispatch.engines.slurm.config import SlurmConfig
from infra.dispatch.engines.slurm.holder import Holder, close, holder_of
from infra.dispatch.engines.slurm.memory import Memory, Submission
from infra.dispatch.engines.slurm.queue import FORMAT, Queue, Row, parse_account
from infra.dispatch.engines.slurm.verdict import is_unsatisfiable, unstarted, word_of
from infra.dispatch.environment import environment
from infra.dispatch.gang import gang_end, read_ends, read_fallen
from infra.dispatch.job import Attempt, Job, job_id, write_spec
from infra.storage.errors import storage_errors
from infra.storage.objects import read_or_none

_CANCEL_POLL_S = 0.2
_LOCKS = 64  # a submission takes a tenth of a second: few wait for a stranger's


class SlurmBackend:
    """Runs attempts as batch jobs of one cluster.

    Args:
        state: a folder on a local disk, by which the dispatchers of this machine share their look at the queue.
    """

    def __init__(self, config: SlurmConfig, state: Path) -> None:
        self._config = config
        self._state = state.absolute() / "slurm" / config.cluster
        self._commands = Commands(config)
        self._memory = Memory(Path(config.folder))
        self._queue = Queue(self._state, self._look, config.queue_age_s)
        self._cluster_is_right = False
        self._unsatisfiable_since_s: dict[str, float] = {}

    @property
    def identity(self) -> str:
        return f"slurm:{self._config.cluster}:user {os.getuid()}:{self._config.folder}"  # users may not see each other's jobs

    def submit_or_attach(self, job: Job, attempt: Attempt) -> Handle:
        if (refusal := self._config.refusal(job.resources)) is not None:
            raise JobRejected(f"{job.title}: {refusal}")
        self._require_cluster()
        handle = Handle(job_id(job, attempt.number), attempt)
        submission = Submission(spec_url=write_spec(job, attempt), hosts=job.resources.target.hosts)
        self._memory.remember(handle, submission)
        with self._alone(handle):
            if not self._is_known(handle, submission):
                self._submit(job, handle, submission)
        return handle

    def poll(self, handle: Handle) -> EngineState:
        if (end := self._memory.end(handle)) is not None:
            return EngineState("ended", end)
        submission, asked_s = self._memory.submission(handle), time.monotonic()
        rows = self._of(handle)
        if all(row.is_over for row in rows):  # an older look must not conclude
            rows = self._of(handle, not_before_s=asked_s)
        living = [row for row in rows if not row.is_over]
        if living:
            self._end_what_must_not_run(submission, rows)
            return EngineState("running" if any(not row.is_waiting for row in living) else "pending")
        if submission is None:
            return EngineState("ended", End(ending=Ending.NEVER_STARTED, what="it was never handed to Slurm"))
        return self._concluded(handle, submission, rows)

    def cancel(self, handle: Handle) -> bool:
        submission = self._memory.submission(handle)
        if submission is not None:
            close(submission.directory, End(ending=Ending.CANCELLED, what="it was cancelled before it started"))
        deadline_s = time.monotonic() + self._config.completion_s
        while living := [row for row in self._of(handle, not_before_s=time.monotonic()) if not row.is_over]:
            if time.monotonic() >= deadline_s:
                return False
            self._commands.cancel([row.id for row in living if row.state != "COMPLETING"])
            time.sleep(_CANCEL_POLL_S)
        return True

    def logs(self, handle: Handle, tail: int) -> str:
        try:
            with self._memory.log(handle).open(errors="replace") as stream:
                return "".join(deque(stream, maxlen=tail)).rstrip("\n")
        except FileNotFoundError:
            return ""

    def log_location(self, handle: Handle) -> str:
        return str(self._memory.log(handle))

    def _is_known(self, handle: Handle, submission: Submission) -> bool:
        """Whether Slurm has a job of the attempt, or had one that started, or none may start. Ends jobs of another store's attempt."""
        rows = self._queue.jobs(handle.job_id, not_before_s=time.monotonic())
        # Of a store that was removed and made anew: its attempt 1 is not this one, and must not record its end as this one's.
        strangers = [row for row in rows if not row.is_over and row.comment != handle.attempt.uid]
        self._commands.cancel([row.id for row in strangers if row.is_waiting])
        self._commands.kill([row.id for row in strangers if not row.is_waiting])
        if any(not row.is_over and row.comment == handle.attempt.uid for row in rows):
            return True
        return self._memory.end(handle) is not None or holder_of(submission.directory) is not None

    def _submit(self, job: Job, handle: Handle, submission: Submission) -> None:
        python = self._config.python or sys.executable
        self._commands.submit(
            script.options(self._config, job, handle.attempt, self.log_location(handle)),
            script.batch_script(python, submission.spec_url, handle.attempt.uid, self._config.host_address),
            environment(job.resources, os.environ),
        )

    def _concluded(self, handle: Handle, submission: Submission, rows: list[Row]) -> EngineState:
        """The end of an attempt of which Slurm runs nothing. `close` comes first: from then on nothing of it can start."""
        holder = holder_of(submission.directory) or close(submission.directory, unstarted(rows))
        end = holder.end or self._end_of(submission, holder, rows)
        return EngineState("ended", self._memory.conclude(handle, end))

    def _end_of(self, submission: Submission, holder: Holder, rows: list[Row]) -> End:
        row = next((row for row in rows if row.id == holder.job), None) or self._accounted(holder)
        directory = submission.directory
        ends = read_ends(directory, submission.hosts)
        word = word_of(row) if row is not None else None
        if word is None and not ends:
            word = self._silent(directory, row)
        return gang_end(ends, submission.hosts, read_fallen(directory), word)

    def _silent(self, directory: str, row: Row | None) -> End | None:
        """No host recorded an end, and Slurm has no word for it."""
        if row is None:
            return End(ending=Ending.NODE_LOST, what="Slurm has forgotten the job, and no host recorded how it ended")
        if read_or_none(f"{directory}/beat.json") is None:
            return None  # no supervisor ever ran
        return End(ending=Ending.SUPERVISOR_LOST, what=f"the supervisors ended without a record (Slurm job {row.id}, {row.state})")

    def _accounted(self, holder: Holder) -> Row | None:
        """The holder's job as the accounting database has it, where there is one."""
        if not self._config.accounting or holder.job is None:
            return None
        return parse_account(self._commands.ask("sacct", "-X", "-n", "-P", "-j", holder.job, "-o", "JobID,State"))

    def _end_what_must_not_run(self, submission: Submission | None, rows: list[Row]) -> None:
        """Jobs that lost the race for the attempt, that were requeued, or that no time will start."""
        if submission is None:  # somebody cleaned the folder: who holds the attempt is not known here
            return
        living = [row for row in rows if not row.is_over]
        doomed = [row.id for row in living if row.restarts]
        if len(rows) > 1 and (holder := holder_of(submission.directory)) is not None:
            doomed += [row.id for row in living if row.id != holder.job and row.is_waiting]
        for row in living:
            if self._waits_in_vain(row):
                close(submission.directory, End(ending=Ending.UNSCHEDULABLE, what=f"Slurm can't start job {row.id} ({row.reason})"))
                doomed.append(row.id)
        self._commands.cancel(list(dict.fromkeys(doomed)))

    def _waits_in_vain(self, row: Row) -> bool:
        if not is_unsatisfiable(row):
            self._unsatisfiable_since_s.pop(row.id, None)
            return False
        since_s = self._unsatisfiable_since_s.setdefault(row.id, time.monotonic())
        return time.monotonic() - since_s >= self._config.unsatisfiable_s

    @contextmanager
    def _alone(self, handle: Handle) -> Iterator[None]:
        """Submitters of one machine take turns, so that the second finds what the first queued."""
        path = self._state / "locks" / str(zlib.crc32(handle.job_id.encode()) % _LOCKS)
        with ExitStack() as stack:
            with storage_errors("lock", str(path)):
                path.parent.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context(path.open("ab"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _of(self, handle: Handle, *, not_before_s: float | None = None) -> list[Row]:
        return [row for row in self._queue.jobs(handle.job_id, not_before_s=not_before_s) if row.comment == handle.attempt.uid]

    def _look(self) -> str:
        return self._commands.ask("squeue", f"--user={os.getuid()}", "--states=all", "--noheader", "-O", FORMAT)

    def _require_cluster(self) -> None:
        if self._cluster_is_right:
            return
        if shutil.which("sbatch") is None:
            raise JobRejected("slurm: there is no sbatch on this machine; install Slurm's client, or dispatch from a submit host")
        found = self._commands.cluster()
        if found != self._config.cluster:
            raise JobRejected(
                f"slurm: the profile names cluster {self._config.cluster!r}, but {found!r} answers; correct `cluster` or `conf`"
            )
        self._cluster_is_right = True
