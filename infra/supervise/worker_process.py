"""One rank as its supervisor holds it: born in its own process group, heard through a pipe, reaped with its usage.

Imports the standard library alone: the worker starts before the supervisor has imported anything else, so that
both import at the same time.
"""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from infra.supervise.processes import PARENT_VARIABLE, Group
from infra.supervise.pulse import DESCRIPTOR_VARIABLE, PulseReader


@dataclass(frozen=True)
class Usage:
    """Of the worker and every child it waited for."""

    cpu_s: float
    max_rss_bytes: int


class WorkerProcess:
    """One worker, from start to reaping.

    Args:
        told: variables of its environment that say who it is.
        log: a descriptor for what it prints; None for the supervisor's own.
    """

    def __init__(self, spec_url: str, rank: int, told: Mapping[str, str], log: int | None = None) -> None:
        self.rank = rank
        self.started_s = time.monotonic()
        heard, beating = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "infra.dispatch.worker", spec_url],
            env={**os.environ, **told, DESCRIPTOR_VARIABLE: str(beating), PARENT_VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[beating],
            process_group=0,
        )
        os.close(beating)
        self.pulse = PulseReader(heard)
        self.group = Group.led_by(self._process.pid)
        self.returncode: int | None = None
        self.usage = Usage(0.0, 0)
        self.steps = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self.returncode is None

    def hear(self) -> bool:
        """Take in what it said; whether it made progress."""
        saved, beats = self.pulse.saved, self.pulse.drain()
        self.steps += beats
        return beats > 0 or self.pulse.saved > saved

    def reaped(self, status: int, used: resource.struct_rusage) -> None:
        """The kernel's last word on it."""
        self.returncode = self._process.returncode = os.waitstatus_to_exitcode(status)
        self.usage = _usage(used)

    def send(self, number: signal.Signals) -> None:
        """Signal the worker itself, unless it has ended."""
        if self.alive:
            os.kill(self.pid, number)

    def send_to_group(self, number: signal.Signals) -> None:
        """Signal the worker and all its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.group.pgid, number)

    def has_group(self) -> bool:
        """Whether anything is left of its group, zombies included."""
        try:
            os.killpg(self.group.pgid, 0)
        except ProcessLookupError:
            return False
        return True


def _usage(used: resource.struct_rusage) -> Usage:
    unit = 1 if sys.platform == "darwin" else 1024
    return Usage(used.ru_utime + used.ru_stime, used.ru_maxrss * unit)
