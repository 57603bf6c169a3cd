"""`python -P -m infra.dispatch.engines.ray.supervised SPEC_URL --host H`: the host's supervisor, told to stop if its actor dies.

Told, and not killed: it is the one who ends whatever its workers started, and who records how the host ended. But a Ray
worker that exits kills its child processes. So its child is a guard, whose death the kernel tells the supervisor.
"""

import contextlib
import ctypes
import os
import signal
import sys

from infra.dispatch.engines.ray.words import SUPERVISOR_KILLED
from infra.supervise.processes import LINUX, die_with_parent

_PR_SET_PDEATHSIG = 1


def guard(arguments: list[str]) -> int:
    """Have a child process supervise; pass SIGTERM on to it, and give its exit code."""
    die_with_parent()
    parent = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        stop_with(parent)
        from infra.supervise.__main__ import main

        os._exit(main(arguments))

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, number)

    signal.signal(signal.SIGTERM, pass_on)
    code = os.waitstatus_to_exitcode(os.waitpid(supervisor, 0)[1])
    return SUPERVISOR_KILLED if code < 0 else code


def stop_with(parent: int) -> None:
    """Have the kernel send SIGTERM to this process when `parent` is gone. Linux only."""
    if not LINUX:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it was gone before we asked
        os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]))
