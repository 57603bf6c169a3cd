"""The job `everything`: one request for the whole lineage, which the daemon then walks."""

import dagster as dg
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.execution.backfill import PartitionBackfill

from assets.lineage import STAGES
from assets.partitions import PROFILE


def request(instance: dg.DagsterInstance, **tags: str) -> PartitionBackfill:
    job = ReconstructableRepository.for_module("orchestration.definitions", "defs").get_reconstructable_job("everything")
    assert dg.execute_job(job, instance, tags=tags).success
    (backfill,) = instance.get_backfills()
    return backfill


def test_everything_asks_for_every_partition_of_every_asset():
    with dg.DagsterInstance.ephemeral() as instance:
        backfill = request(instance)
        assert {key.to_user_string() for key in backfill.asset_selection or ()} == set(STAGES)
        assert backfill.asset_backfill_data is not None
        raw = backfill.asset_backfill_data.target_subset.get_partitions_subset(dg.AssetKey("raw"))
        assert set(raw.get_partition_keys()) == set(PROFILE.sources)


def test_its_tags_go_with_the_request_and_dagsters_own_do_not():
    with dg.DagsterInstance.ephemeral() as instance:
        snapshot = "2026-12-01T03:00:00Z"
        assert request(instance, **{"seaway/snapshot": snapshot, "dagster/run_key": "x"}).tags == {"seaway/snapshot": snapshot}
