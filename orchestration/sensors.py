"""Sensors: new files under a source's prefix start a new raw artifact of that source; orphans are swept."""

import json
import os

import dagster as dg

from assets.partitions import PROFILE
from ops.crawl.config import WarcSource
from ops.crawl.listing import Entry, SourceError, fingerprint, list_entries
from orchestration.orphans import orphans

ARRIVALS = dg.define_asset_job("arrivals", dg.AssetSelection.assets("raw"), description="Take in what arrived under a source's prefix.")

NOTHING = "nothing"
"""What the cursor holds for a prefix that is missing or empty, so that its first file is an arrival."""


@dg.sensor(
    job=ARRIVALS,
    minimum_interval_seconds=300,
    description="Files that came, went or changed under the prefix of a WARC source: one run per source. "
    "The first tick only remembers what is there; a prefix that holds nothing yet is waited for.",
)
def new_warc_files(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    watched = {key: spec for key, spec in sorted(PROFILE.sources.items()) if isinstance(spec, WarcSource)}
    if not watched:
        return dg.SkipReason(f"profile {PROFILE.name} has no source of kind 'warc'")
    before = json.loads(context.cursor) if context.cursor else {}
    now = {key: glance(context, key, spec) for key, spec in watched.items()}
    changed = [key for key, seen in now.items() if seen != NOTHING and before.get(key, seen) != seen]
    requests = [dg.RunRequest(run_key=f"{key}-{now[key]}", partition_key=key) for key in changed]
    return dg.SensorResult(run_requests=requests, cursor=json.dumps(now))


def glance(context: dg.SensorEvaluationContext, key: str, source: WarcSource) -> str:
    """16 hex over names, sizes and times: a tick has a minute, so it lists and reads nothing. What `raw` reads decides."""
    try:
        return fingerprint((entry.name, entry.size, _mark(entry)) for entry in list_entries(source))
    except SourceError as error:
        context.log.info(f"{key}: {error}")
        return NOTHING


def _mark(entry: Entry) -> str:
    """A store's own mark; on a disk, when the file was last written."""
    if entry.etag is not None:
        return entry.etag
    try:
        return str(os.stat(entry.url).st_mtime_ns)
    except OSError:
        return "gone"  # between the listing and now; the next tick sees it as it is then


SENSORS = [new_warc_files, orphans]
