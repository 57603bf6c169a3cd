"""`python -P -m infra.dispatch.engines.ray.supervised SPEC_URL --host H`: the host's supervisor, told to stop if its actor dies.

Told, and not killed: it is the one who ends whatever its workers started, and who records how the host ended.
"""

import ctypes
import os
import signal
import sys

from infra.supervise.processes import LINUX, PARENT_VARIABLE

_PR_SET_PDEATHSIG = 1


def stop_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when the parent that `PARENT_VARIABLE` names is gone. Linux only."""
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None or not LINUX:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):  # it was gone before we asked
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    stop_with_parent()
    from infra.supervise.__main__ import main

    sys.exit(main(sys.argv[1:]))
