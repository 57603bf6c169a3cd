"""Runs whose process died without a word.

Dagster's daemon watches the processes that it launched. A run that a command executed itself would be in progress for
ever: it holds a place in the queue of the UI's runs, and no automation touches its assets.
"""

import os
import socket

import dagster as dg

from infra.supervise.processes import start_of

PROCESS_TAG = "seaway/process"
GOING_ON = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def tag_of_this_process() -> str:
    """`host/pid/start`: the value of `PROCESS_TAG` for a run that this process executes."""
    return f"{socket.gethostname()}/{os.getpid()}/{start_of(os.getpid())}"


def fail_lost_runs(instance: dg.DagsterInstance) -> None:
    """Mark every such run of this machine as failed. Their jobs go on, or have ended by themselves: that is the dispatcher's."""
    for run in instance.get_runs(dg.RunsFilter(statuses=GOING_ON)):
        tag = None if run.parent_run_id else run.tags.get(PROCESS_TAG)  # executed again in the UI, it has its parent's tags
        if tag and _is_gone(tag):
            instance.report_run_failed(run, "its process ended without a word; run the same command again to go on")


def _is_gone(tag: str) -> bool:
    host, pid, start = tag.rsplit("/", 2)
    if host != socket.gethostname():
        return False
    try:
        return str(start_of(int(pid))) != start
    except ProcessLookupError:
        return True
