"""Runs whose process died without a word: they end as failed, so that they give back what they hold and can be run again."""

import dagster as dg

from assets.process import is_lost

GOING_ON = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def fail_lost_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark every such run of this machine as failed, one that was being terminated as cancelled; their ids.

    Their jobs go on, or have ended by themselves: that is the dispatcher's. Where Dagster's retries are on, the daemon
    starts each failed one again, and it attaches to its job.
    """
    lost = [run for run in instance.get_runs(dg.RunsFilter(statuses=GOING_ON)) if is_lost(run)]
    for run in lost:
        if run.status is dg.DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run, "its process ended without a word while it was being terminated")
        else:
            instance.report_run_failed(run, "its process ended without a word; run it again to go on")
    return [run.run_id for run in lost]
