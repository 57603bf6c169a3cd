"""The nightly refresh: a new snapshot of every live source."""

from datetime import UTC

import dagster as dg

from assets.partitions import PROFILE
from assets.snapshots import INSTANT_FORMAT
from assets.stage import SNAPSHOT_TAG

# A snapshot is crawled under tonight's date; what is downstream follows by automation, if bytes changed.
REFRESH = dg.define_asset_job("refresh", dg.AssetSelection.assets("raw"), description="Crawl a new snapshot of a live source.")


@dg.schedule(
    job=REFRESH,
    cron_schedule="0 3 * * *",
    execution_timezone="UTC",
    description="Every night at 03:00 UTC: a new snapshot of each live source.",
)
def nightly_refresh(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
    live = PROFILE.live_sources
    if not live:
        return dg.SkipReason(f"profile {PROFILE.name} has no live source")
    instant = context.scheduled_execution_time.astimezone(UTC).strftime(INSTANT_FORMAT)
    return [dg.RunRequest(run_key=f"{source}-{instant}", partition_key=source, tags={SNAPSHOT_TAG: instant}) for source in live]


SCHEDULES = [nightly_refresh]
