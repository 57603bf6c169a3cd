"""The sweep: jobs that nobody wants any more, attempts whose end nobody recorded, what they left, runs whose process is gone."""

import time
from collections.abc import Iterator

import dagster as dg

from assets.factory import Factory
from assets.wanted import is_wanted
from infra.artifacts.lease import StalenessObserver
from infra.dispatch.backend import EngineUnavailable
from infra.dispatch.leftovers import remove_leftovers
from infra.dispatch.reconcile import Cancel, carry_out, reconcile, survey
from infra.storage.errors import StorageError
from infra.storage.objects import list_names
from orchestration.lost_runs import ask_for_forgotten_retries, fail_lost_runs

LOOK_S = 20.0  # a tick has a minute, and an engine may take half of it to confirm one cancel
STALE_S = 90.0  # the dispatcher's own patience with a silent attempt

_observer = StalenessObserver()  # lives as long as the code server: an attempt is stale only if it was watched being silent


@dg.sensor(
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Ends jobs whose run was cancelled or deleted while nobody watched, records ends that nobody recorded, removes "
    "what lost attempts left, fails runs whose process is gone, and asks again for retries that were forgotten.",
)
def orphans(context: dg.SensorEvaluationContext, factory: dg.ResourceParam[Factory]) -> dg.SkipReason:
    lost = fail_lost_runs(context.instance)
    for run_id in lost:
        context.log.warning(f"run {run_id} lost its process")
    for run_id in ask_for_forgotten_retries(context.instance):
        context.log.warning(f"run {run_id} was to be run again and was forgotten")
    try:
        swept, context_cursor = sweep(context.instance, factory, _observer, context.cursor)
    except (EngineUnavailable, StorageError) as error:
        return dg.SkipReason(f"come back later: {error}")
    context.update_cursor(context_cursor)
    for what in swept:
        context.log.warning(what)
    return dg.SkipReason(f"{len(swept)} orphans swept, {len(lost)} lost runs ended" if swept or lost else "no orphans")


def sweep(
    instance: dg.DagsterInstance, factory: Factory, observer: StalenessObserver, cursor: str | None, look_s: float = LOOK_S
) -> tuple[list[str], str]:
    """Look at addresses after the cursor, in a circle, for at most `look_s` seconds; what was done, and the new cursor.

    Raises:
        EngineUnavailable, StorageError: nothing is lost; the next sweep begins at the same place.
    """
    done, deadline = [], time.monotonic() + look_s
    for folder in _in_a_circle(factory.store.root, cursor or ""):
        addresses = [f"{folder}/{recipe}" for recipe in _visible(folder)]
        seen = survey(addresses, factory.backend, observer, is_wanted=lambda address: is_wanted(instance, address))
        for action in reconcile(seen, stale_s=STALE_S):
            if isinstance(action, Cancel) and action.why.startswith("its run") and is_wanted(instance, action.address):
                continue  # a new run came for it since we looked
            what = f"cancelled, because {action.why}" if isinstance(action, Cancel) else f"ended as {action.end.ending}"
            done.append(f"{action.handle.job_id}: {what}" + ("" if carry_out(action, factory.backend) else "; not confirmed yet"))
        removed = ((address, remove_leftovers(factory.store, address)) for address in addresses)
        done += [f"{address}: {len(names)} folders of lost attempts removed" for address, names in removed if names]
        cursor = folder
        if time.monotonic() > deadline:
            break
    return done, cursor or ""


def _in_a_circle(root: str, cursor: str) -> Iterator[str]:
    """Every asset's and partition's folder, beginning after the cursor. What was renamed or removed from the lineage is there too."""
    folders = [f"{root}/{asset}/{partition}" for asset in _visible(root) for partition in _visible(f"{root}/{asset}")]
    yield from (folder for folder in folders if folder > cursor)
    yield from (folder for folder in folders if folder <= cursor)


def _visible(url: str) -> list[str]:
    return [name for name in list_names(url) if not name.startswith(".")]
