"""Sensors: new files under a source's prefix start a new raw artifact of that source."""

import json

import dagster as dg

from assets.partitions import PROFILE
from ops.observe import observe

ARRIVALS = dg.define_asset_job("arrivals", dg.AssetSelection.assets("raw"), description="Take in what arrived under a source's prefix.")


@dg.sensor(
    job=ARRIVALS,
    minimum_interval_seconds=300,
    description="Files that came, went or changed under the prefix of a WARC source: one run per source. "
    "The first tick only remembers what is there.",
)
def new_warc_files(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    watched = {key: spec for key, spec in sorted(PROFILE.sources.items()) if spec.kind == "warc"}
    if not watched:
        return dg.SkipReason(f"profile {PROFILE.name} has no source of kind 'warc'")
    before = json.loads(context.cursor) if context.cursor else {}
    now = {key: observe(spec) for key, spec in watched.items()}
    changed = [key for key, fingerprint in now.items() if before.get(key, fingerprint) != fingerprint]
    requests = [dg.RunRequest(run_key=f"{key}-{now[key]}", partition_key=key) for key in changed]
    return dg.SensorResult(run_requests=requests, cursor=json.dumps(now))


SENSORS = [new_warc_files]
