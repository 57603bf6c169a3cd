"""Which run wants a job: remembered by Dagster's instance when the job is sent, and asked by whoever looks for orphans.

A job outlives its run on purpose. What tells an orphan is that a person ended the run, or deleted it, while nobody was
there to end the job with it. Another instance's jobs have no record here, so nobody judges them.
"""

import dagster as dg

PREFIX = "seaway/job/"


def remember_who_wants(instance: dg.DagsterInstance, address: str, run_id: str) -> None:
    """The newest run that wants the artifact at an address. Written before its job is sent, so that no job can miss it."""
    cursors = instance.daemon_cursor_storage
    if cursors is not None:
        cursors.set_cursor_values({f"{PREFIX}{address}": run_id})


def is_wanted(instance: dg.DagsterInstance, address: str) -> bool:
    """False once the newest run that wanted it was cancelled or deleted. A failed run may be run again, and attach."""
    cursors = instance.daemon_cursor_storage
    run_id = cursors.get_cursor_values({f"{PREFIX}{address}"}).get(f"{PREFIX}{address}") if cursors is not None else None
    if run_id is None:
        return True
    run = instance.get_run_by_id(run_id)
    return run is not None and run.status is not dg.DagsterRunStatus.CANCELED
