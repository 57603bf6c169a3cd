"""Process groups: born together, ended together, and never confused with a stranger that got a used number."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARENT_VARIABLE = "SEAWAY_SUPERVISOR_PID"
LINUX = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02
_STATES = {"R": "running", "S": "sleeping", "D": "waiting for a device", "T": "stopped", "t": "traced", "Z": "ended"}


@dataclass(frozen=True)
class Group:
    """A process group, known by its number, its session and when its leader started.

    A number alone may come back with another process; the three together can't.
    """

    pgid: int
    session: int
    started: float

    @classmethod
    def led_by(cls, pid: int) -> "Group":
        """The group of a process that leads it.

        Raises:
            ProcessLookupError: there is no such process any more.
        """
        return cls(os.getpgid(pid), os.getsid(pid), start_of(pid))

    def members(self) -> list[int]:
        """Living members, zombies left out.

        While a member lives, the kernel gives the group's number to nobody else. So a leader with another start
        time means that the group is gone and a stranger has its number.
        """
        import psutil  # 50 ms, and only an abnormal end needs it

        found = [pid for pid in psutil.pids() if _belongs(pid, self)]
        if self.pgid in found and _start_or_none(self.pgid) not in (None, self.started):
            return []
        return [pid for pid in found if not _is_zombie(psutil, pid)]

    def signal(self, number: int) -> None:
        """Signal every member."""
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, deadline_s: float = 10.0) -> bool:
        """Kill every member and wait for the last; False if some survived the deadline (uninterruptible I/O)."""

        def gone() -> bool:
            self.signal(signal.SIGKILL)  # again each time: a member may have forked between two looks
            return not self.members()

        return wait_until(gone, deadline_s)


def start_of(pid: int) -> float:
    """When a process started: kernel ticks since boot on Linux, which no clock adjustment moves; seconds elsewhere.

    Raises:
        ProcessLookupError: there is no such process.
    """
    if LINUX:
        try:
            return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        except FileNotFoundError:
            raise ProcessLookupError(f"no process {pid}") from None
    import psutil  # 50 ms that Linux needn't pay

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        raise ProcessLookupError(f"no process {pid}") from None


def wait_until(condition: Callable[[], bool], deadline_s: float) -> bool:
    """Look again and again until the condition holds (True) or the time is up (False)."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_S)
    return True


def die_with_parent() -> None:
    """Have the kernel kill this process when the parent that `PARENT_VARIABLE` names is gone.

    Linux only; elsewhere whoever notices the parent's death kills the group.
    """
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None or not LINUX:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # it was gone before we asked
        os._exit(128 + signal.SIGKILL)


def adopt_orphans() -> None:
    """Have the kernel give orphans among this process's descendants to it and not to init: none can slip away. Linux only."""
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_marked(variable: str, value: str, deadline_s: float) -> bool:
    """Kill every process in whose environment `variable` is `value`; False if some survived the deadline. Not this process."""
    import psutil

    def left() -> list[Any]:
        found = [
            process for process in psutil.process_iter() if process.pid != os.getpid() and _is_marked(psutil, process, variable, value)
        ]
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return found

    return wait_until(lambda: not left(), deadline_s)


def state_of(pid: int) -> str:
    """What the kernel says a process is doing, in words; `gone` if there is none, `unknown` off Linux."""
    if not LINUX:
        return "unknown"
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
    return _STATES.get(letter, letter)


def _belongs(pid: int, group: Group) -> bool:
    try:
        return os.getpgid(pid) == group.pgid and os.getsid(pid) == group.session
    except (ProcessLookupError, PermissionError):
        return False


def _is_marked(psutil: Any, process: Any, variable: str, value: str) -> bool:
    try:
        return bool(process.environ().get(variable) == value and process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _start_or_none(pid: int) -> float | None:
    try:
        return start_of(pid)
    except ProcessLookupError:
        return None


def _is_zombie(psutil: Any, pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
