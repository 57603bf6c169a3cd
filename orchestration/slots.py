"""Slots of Dagster's pools: a slot that its run does not give back keeps a job from starting for ever."""

import dagster as dg


def held_by_the_dead(instance: dg.DagsterInstance) -> list[tuple[str, str]]:
    """(pool, run id) of every slot that is held by a run which has ended or was deleted."""
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return []
    held = [
        (pool, slot.run_id) for pool in sorted(storage.get_concurrency_keys()) for slot in storage.get_concurrency_info(pool).claimed_slots
    ]
    finished = {run_id: (run := instance.get_run_by_id(run_id)) is None or run.is_finished for _, run_id in held}
    return [(pool, run_id) for pool, run_id in dict.fromkeys(held) if finished[run_id]]
