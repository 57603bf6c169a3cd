"""The default engine: this machine. One detached supervisor per attempt, parent of all its ranks; its memory is a folder.

    {state}/{job id}/submit.lock       held while somebody starts the attempt
                     submission.json   that it was started, and for which uid
                     alive.lock        held by the supervisor from its birth to its death, by nobody else
                     supervisor.json   process ids, with start times
                     log.txt           what supervisor and worker print
                     ended.json        how it ended; written by the supervisor before it lets go of the lock

The supervisor gets the locked descriptor from its starter, so there is no moment at which it lives without the lock;
and the kernel lets go of it when the supervisor dies, however it dies. Process ids are never trusted alone.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.dispatch.backend import EngineState, Handle, JobRejected
from infra.dispatch.devices import Kind
from infra.dispatch.endings import End, Ending
from infra.dispatch.environment import environment
from infra.dispatch.job import Attempt, Job, Resources, job_id, write_spec
from infra.storage.errors import storage_errors
from infra.supervise.processes import kill_marked, start_of, wait_until
from infra.supervise.state import ENDED_NAME, Started, read_started, write_whole

FOLDER_VARIABLE = "SEAWAY_JOB_FOLDER"  # in every process of an attempt, so that `ps e` tells whose it is
_ALIVE_DESCRIPTOR = 3  # in the supervisor
_CANCEL_MARGIN_S = 10.0  # beyond the worker's own grace, for the supervisor to record the end
_KILL_DEADLINE_S = 10.0


@dataclass(frozen=True)
class _Submission:
    """What a starter writes before it starts."""

    uid: str
    spec_url: str
    kill_grace_s: float


class LocalBackend:
    """Runs attempts on this machine. Any process that names the same `state` folder sees the same jobs.

    Args:
        state: a folder on a local disk (it is locked). It must live as long as the jobs do.
    """

    def __init__(self, state: Path) -> None:
        self._state = state.absolute()
        self._children: set[int] = set()

    @property
    def identity(self) -> str:
        return f"local:{socket.gethostname()}:{self._state}"

    def submit_or_attach(self, job: Job, attempt: Attempt) -> Handle:
        _require_runnable(job.title, job.resources)
        handle = Handle(job_id(job, attempt.number), attempt)
        spec_url = write_spec(job, attempt)
        folder = self._folder(handle)
        with storage_errors("keep the job's state in", str(folder)), _locked(folder / "submit.lock"):
            known = _read_submission(folder)
            if known is not None and known.uid != attempt.uid:
                self._discard(folder)  # of a store that was removed and made anew: its attempt 1 is not this one
                known = None
            if known is None:
                self._start(folder, _Submission(attempt.uid, spec_url, job.timeouts.kill_grace_s), job.resources)
        return handle

    def poll(self, handle: Handle) -> EngineState:
        self._reap_children()
        folder = self._folder(handle)
        alive = _is_held(folder / "alive.lock")
        end = _read_end(folder)  # after the lock: once it is free, the supervisor will write no more
        if end is not None:
            return EngineState("ended", end)
        started = read_started(folder)
        if alive:
            return EngineState("running" if started else "pending")
        if started is None:
            return EngineState("ended", End(ending=Ending.NEVER_STARTED, what="its supervisor ended before it started the worker"))
        if not _killed(folder, started):
            return EngineState("running")  # an orphan that won't die still holds its device
        what = f"the supervisor (process {started.pid}) ended without a word; what it left was killed"
        return EngineState("ended", End(ending=Ending.SUPERVISOR_LOST, what=what))

    def cancel(self, handle: Handle) -> bool:
        folder = self._folder(handle)
        submission = _read_submission(folder)
        if submission is None or submission.uid != handle.attempt.uid:
            return True
        self._signal_supervisor(folder, signal.SIGTERM)
        if not wait_until(lambda: self._is_over(handle), submission.kill_grace_s + _CANCEL_MARGIN_S):
            self._signal_supervisor(folder, signal.SIGKILL)
        return wait_until(lambda: self._is_over(handle), _KILL_DEADLINE_S)

    def logs(self, handle: Handle, tail: int) -> str:
        try:
            text = Path(self.log_location(handle)).read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-tail:])

    def log_location(self, handle: Handle) -> str:
        return str(self._folder(handle) / "log.txt")

    def _folder(self, handle: Handle) -> Path:
        return self._state / handle.job_id

    def _is_over(self, handle: Handle) -> bool:
        return self.poll(handle).phase == "ended" and not _is_held(self._folder(handle) / "alive.lock")

    def _start(self, folder: Path, submission: _Submission, resources: Resources) -> None:
        """Start the supervisor, detached. Called under the submit lock."""
        with _locked(folder / "alive.lock") as alive, (folder / "log.txt").open("ab") as log:
            write_whole(folder / "submission.json", json.dumps(asdict(submission)))
            command = [sys.executable, "-P", "-m", "infra.supervise", submission.spec_url, "--hosts", "1", "--state", str(folder)]
            actions = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                (os.POSIX_SPAWN_DUP2, alive, _ALIVE_DESCRIPTOR),
            ]
            # posix_spawn and not subprocess: the process is not ours to wait for, and it may outlive us
            pid = os.posix_spawn(
                sys.executable,
                command,
                {**environment(resources, os.environ), FOLDER_VARIABLE: str(folder)},
                file_actions=actions,
                setsid=True,
                setsigmask=[],  # whatever the starter blocks or ignores, the job must hear
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1],
            )
            self._children.add(pid)

    def _discard(self, folder: Path) -> None:
        self._signal_supervisor(folder, signal.SIGKILL)
        wait_until(lambda: not _is_held(folder / "alive.lock"), _KILL_DEADLINE_S)
        started = read_started(folder)
        if started is not None:
            _killed(folder, started)
        for path in folder.iterdir():
            if path.name != "submit.lock":
                path.unlink() if path.is_file() else shutil.rmtree(path)

    def _signal_supervisor(self, folder: Path, number: signal.Signals) -> None:
        """Signal the supervisor if it lives: the lock says whether, its start time says that the pid is still its own."""
        wait_until(lambda: read_started(folder) is not None or not _is_held(folder / "alive.lock"), _KILL_DEADLINE_S)
        started = read_started(folder)
        if started is None or not _is_held(folder / "alive.lock"):
            return
        with contextlib.suppress(ProcessLookupError):
            if start_of(started.pid) == started.started:
                os.kill(started.pid, number)

    def _reap_children(self) -> None:
        for pid in list(self._children):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._children.discard(pid)


def _require_runnable(title: str, resources: Resources) -> None:
    """This machine stands for any number of hosts without chips, and for one host with those it has."""
    target = resources.target
    if target.kind == "cpu":
        return
    if target.hosts > 1:
        raise JobRejected(
            f"{title}: the local backend is one machine, {target.name} needs {target.processes} processes on {target.hosts} hosts; "
            "choose device cpu for it, or a cluster's backend"
        )
    if (there := len(_chips(target.kind))) < target.chips:
        raise JobRejected(
            f"{title}: {target.name} needs {target.chips} {target.kind.upper()}s, this machine has {there or 'none'}; "
            "choose device cpu for it, a smaller one, or a cluster's backend"
        )


def _chips(kind: Kind) -> list[Path]:
    """Device files of the accelerators that this process may use."""
    patterns = ("nvidia[0-9]*",) if kind == "gpu" else ("accel[0-9]*", "vfio/[0-9]*")
    return [path for pattern in patterns for path in Path("/dev").glob(pattern)]


def _killed(folder: Path, started: Started) -> bool:
    """Kill what a dead supervisor left: its workers' groups, and whatever else bears the attempt's mark."""
    survivors = [group for group in started.workers if not group.kill(_KILL_DEADLINE_S)]
    return kill_marked(FOLDER_VARIABLE, str(folder), _KILL_DEADLINE_S) and not survivors


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Hold an exclusive lock; give its descriptor. A process that inherits the descriptor holds on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield stream.fileno()


def _is_held(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _read_submission(folder: Path) -> _Submission | None:
    try:
        return _Submission(**json.loads((folder / "submission.json").read_text()))
    except FileNotFoundError:
        return None


def _read_end(folder: Path) -> End | None:
    try:
        return End.model_validate_json((folder / ENDED_NAME).read_text())
    except FileNotFoundError:
        return None
