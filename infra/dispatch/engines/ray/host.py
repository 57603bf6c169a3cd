"""One host of a gang on Ray: an actor that is the parent of the host's supervisor, and nothing more.

The actor's process dies with its node's raylet, with its driver, and by Ray's own hand. The supervisor then gets SIGTERM
from the kernel (`supervised`): it ends its workers, records that, and is no orphan.
"""

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from infra.dispatch.endings import EXIT_CODES, Ending
from infra.dispatch.engines.ray.words import SUPERVISOR_KILLED
from infra.dispatch.environment import environment
from infra.dispatch.job import read_spec
from infra.supervise.placement import ADDRESS_VARIABLE
from infra.supervise.processes import PARENT_VARIABLE, wait_until

CHUNK_BYTES = 1 << 20
_FOLLOW_S = 0.1
_KILL_DEADLINE_S = 10.0
_NO_LONGER_WANTED = EXIT_CODES[Ending.PREEMPTED]


class Host:
    """Made an actor by the driver, one for each bundle, with two threads: one runs, the other hears `stop`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._pid: int | None = None

    def place(self) -> str:
        """The node's address, by which the gang's other hosts reach this one."""
        import ray.util

        return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]

    def run(self, spec_url: str, host: int) -> Iterator[bytes | int]:
        """Run the supervisor; yield what it prints, and at last its exit code."""
        with tempfile.TemporaryFile() as log:  # and no pipe: whoever is left alone must still be able to print
            with self._lock:
                if self._stopped:
                    yield _NO_LONGER_WANTED
                    return
                self._pid = pid = _start(spec_url, host, self.place(), log.fileno())
            code, heard = None, 0
            while code is None:
                code = _exit_code(pid)
                while chunk := os.pread(log.fileno(), CHUNK_BYTES, heard):  # the file's own offset is the writers'
                    heard += len(chunk)
                    yield chunk
                if code is None:
                    time.sleep(_FOLLOW_S)
        if code < 0 or code == SUPERVISOR_KILLED:
            _end_session(pid)
            code = SUPERVISOR_KILLED
        yield code

    def stop(self) -> None:
        """Have the supervisor end its workers; `run` gives its exit code then. Nothing is started afterwards."""
        with self._lock:
            self._stopped = True
            if self._pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGTERM)


def _start(spec_url: str, host: int, address: str, log: int) -> int:
    """Start the supervisor in a session of its own; give its pid."""
    command = [sys.executable, "-P", "-m", "infra.dispatch.engines.ray.supervised", spec_url, "--host", str(host)]
    own = {ADDRESS_VARIABLE: address, PARENT_VARIABLE: str(os.getpid())}
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
    ]
    return os.posix_spawn(
        sys.executable,
        command,
        {**environment(read_spec(spec_url).job.resources, os.environ), **own},
        file_actions=actions,
        setsid=True,
        setsigmask=[],  # Ray blocks signals in its workers; the job must hear them
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1],
    )


def _end_session(sid: int) -> None:
    """Kill whatever a supervisor left that was killed itself."""
    import psutil

    def gone() -> bool:
        left = [process for process in psutil.process_iter(["status"]) if _session(process.pid) == sid]
        living = [process for process in left if process.info["status"] != psutil.STATUS_ZOMBIE]
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return not living

    wait_until(gone, _KILL_DEADLINE_S)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _exit_code(pid: int) -> int | None:
    """The supervisor's exit code, negative for a signal; None while it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None
