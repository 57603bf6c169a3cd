"""The worker as its supervisor holds it: born in its own process group, heard through a pipe, reaped with its usage.

Imports the standard library alone: the worker starts before the supervisor has imported anything else, so that
both import at the same time.
"""

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from infra.supervise.processes import PARENT_VARIABLE, Group
from infra.supervise.pulse import DESCRIPTOR_VARIABLE, PulseReader

WAKE = 0  # written to the wake-up pipe by a thread, where the kernel's bytes are signal numbers
DUMP_WAIT_S = 0.5  # faulthandler writes within milliseconds, from the signal handler itself
_VMSTAT = Path("/proc/vmstat")


@dataclass(frozen=True)
class Usage:
    """Of the worker and every child it waited for."""

    cpu_s: float
    max_rss_bytes: int


class WorkerProcess:
    """One worker, from start to reaping."""

    def __init__(self, spec_url: str) -> None:
        self._wake_read, self._wake_write = _wake_on_signals()
        self.started_s = time.monotonic()
        self._oom_kills_before = oom_kills()
        heard, told = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "infra.dispatch.worker", spec_url],
            env={**os.environ, DESCRIPTOR_VARIABLE: str(told), PARENT_VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            pass_fds=[told],
            process_group=0,
        )
        os.close(told)
        self.pulse = PulseReader(heard)
        self.group = Group.led_by(self._process.pid)
        self.returncode: int | None = None
        self.usage = Usage(0.0, 0)

    def wake(self) -> None:
        """Make `wait` return; for other threads."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, bytes([WAKE]))

    def wait(self, timeout_s: float) -> set[int]:
        """Sleep until a beat, a signal, a wake-up or the time-out; give the signals that came."""
        ready, _, _ = select.select([self.pulse.descriptor, self._wake_read], [], [], max(0.0, timeout_s))
        signals = set(os.read(self._wake_read, 4096)) if self._wake_read in ready else set()
        self._reap()
        return signals

    def wait_for_end(self, timeout_s: float) -> bool:
        """Wait for the worker itself; True if it has ended."""
        deadline = time.monotonic() + timeout_s
        while self.returncode is None and (left := deadline - time.monotonic()) > 0:
            select.select([self._wake_read], [], [], left)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
            self._reap()
        return self.returncode is not None

    def dump_stacks(self) -> None:
        """Have the worker print the stack of every thread to its log."""
        print("supervisor: the stacks of the worker's threads, newest call first:", file=sys.stderr, flush=True)
        self._signal(signal.SIGUSR1)
        self.wait_for_end(DUMP_WAIT_S)

    def stop(self, grace_s: float) -> None:
        """End the group: politely, then not. Returns when the worker is reaped."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.group.pgid, signal.SIGTERM)
        if not self.wait_for_end(grace_s):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.group.pgid, signal.SIGKILL)
        while not self.wait_for_end(60.0):
            print(
                "supervisor: the worker does not die (uninterruptible I/O?); its device is not free, waiting", file=sys.stderr, flush=True
            )

    def end_group(self) -> None:
        """After the worker's end: kill whatever it left in its group."""
        try:
            os.killpg(self.group.pgid, 0)
        except ProcessLookupError:
            return
        print("supervisor: the worker left processes behind; killing them", file=sys.stderr, flush=True)
        self.group.kill()

    def oom_kills(self) -> int:
        """Processes that the kernel killed for memory while the worker ran, on the whole machine."""
        return oom_kills() - self._oom_kills_before

    def _reap(self) -> None:
        if self.returncode is not None:
            return
        pid, status, used = os.wait4(self._process.pid, os.WNOHANG)
        if pid:
            self.returncode = self._process.returncode = os.waitstatus_to_exitcode(status)
            self.usage = _usage(used)

    def _signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self._process.pid, number)


def oom_kills() -> int:
    try:
        rows = dict(line.split() for line in _VMSTAT.read_text().splitlines())
    except OSError:
        return 0
    return int(rows.get("oom_kill", 0))


def _usage(used: resource.struct_rusage) -> Usage:
    unit = 1 if sys.platform == "darwin" else 1024
    return Usage(used.ru_utime + used.ru_stime, used.ru_maxrss * unit)


def _wake_on_signals() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)  # the pipe carries the number; a handler must exist for it
    return read, write
