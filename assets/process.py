"""Which process executes a run: written on the run, so that its death can be told from its silence.

Dagster's own launcher notices a dead process only while the code server that started it lives. After a reboot nobody
would, and the run would be in progress for ever, with its slot of a pool and its place in the queue.
"""

import os
import socket

import dagster as dg

from infra.supervise.processes import start_of

PROCESS_TAG = "seaway/process"


def tag_of_this_process(run_id: str) -> str:
    """`run/host/pid/start`: the value of `PROCESS_TAG` for a run that this process executes.

    The run is named because a run that is executed again inherits its parent's tags.
    """
    return f"{run_id[:8]}/{socket.gethostname()}/{os.getpid()}/{start_of(os.getpid())}"


def sign(instance: dg.DagsterInstance, run_id: str) -> None:
    """Write this process on a run that it executes."""
    instance.add_run_tags(run_id, {PROCESS_TAG: tag_of_this_process(run_id)})


def is_lost(run: dg.DagsterRun) -> bool:
    """Whether the run was executed on this machine by a process that is gone."""
    tag = run.tags.get(PROCESS_TAG, "").split("/")
    if len(tag) != 4 or tag[0] != run.run_id[:8] or tag[1] != socket.gethostname():
        return False
    try:
        return str(start_of(int(tag[2]))) != tag[3]
    except ProcessLookupError:
        return True
