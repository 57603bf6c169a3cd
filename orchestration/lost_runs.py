"""Runs whose process died without a word: they end as failed, so that they give back what they hold and can be run again.

And failed runs that Dagster means to run again and forgot. It writes the failure's event first and the run's status and
tags after, and its daemon looks at each event once: if it looks in between, it takes the run for one that needs nothing.
A backfill would then wait for that retry for ever.
"""

import time

import dagster as dg
from dagster._core.storage.tags import AUTO_RETRY_RUN_ID_TAG, WILL_RETRY_TAG

from assets.process import is_lost

GOING_ON = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]

ASKED_TAG = "seaway/asked-again"
"""On a run whose retry was asked for a second time. It names the run, because retries inherit their parent's tags."""

FORGOTTEN_S = (30.0, 3600.0)
"""How long after a failure its retry must have come, and after how long nobody waits for it any more."""


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


def ask_for_forgotten_retries(instance: dg.DagsterInstance) -> list[str]:
    """Report the failure of every forgotten run once more: by now its status and tags say what it needs. Their ids."""
    soonest, latest = (time.time() - age for age in FORGOTTEN_S)
    failed = instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], tags={WILL_RETRY_TAG: "true"}))
    forgotten = [
        record.dagster_run
        for record in failed
        if latest < (record.end_time or 0.0) < soonest
        and AUTO_RETRY_RUN_ID_TAG not in record.dagster_run.tags
        and record.dagster_run.tags.get(ASKED_TAG) != record.dagster_run.run_id
    ]
    for run in forgotten:
        instance.add_run_tags(run.run_id, {ASKED_TAG: run.run_id})
        instance.report_run_failed(run, "the daemon did not run it again, though it meant to; asked once more")
    return [run.run_id for run in forgotten]
