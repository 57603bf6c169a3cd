"""The jobs `everything` and `deepen`: one request for their part of the lineage, which the daemon then walks."""

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.execution.backfill import PartitionBackfill

from assets.lineage import STAGES
from assets.partitions import PROFILE


def request(instance: dg.DagsterInstance, name: str = "everything", **tags: str) -> PartitionBackfill:
    job = ReconstructableRepository.for_module("orchestration.definitions", "defs").get_reconstructable_job(name)
    assert dg.execute_job(job, instance, tags=tags).success
    (backfill,) = instance.get_backfills()
    return backfill


@pytest.mark.parametrize(("name", "on_demand", "partitioned", "keys"), [
    ("everything", False, "raw", set(PROFILE.sources)), ("deepen", True, "pruned_tokenizer", set(PROFILE.vocabularies)),
])  # fmt: skip
def test_a_job_asks_for_every_partition_of_its_part_of_the_lineage(name: str, on_demand: bool, partitioned: str, keys: set[str]):
    with dg.DagsterInstance.ephemeral() as instance:
        backfill = request(instance, name)
        asked = {key.to_user_string() for key in backfill.asset_selection or ()}
        assert asked == {key for key, stage in STAGES.items() if stage.on_demand == on_demand}
        assert backfill.asset_backfill_data is not None
        found = backfill.asset_backfill_data.target_subset.get_partitions_subset(dg.AssetKey(partitioned))
        assert set(found.get_partition_keys()) == keys


def test_its_tags_go_with_the_request_and_dagsters_own_do_not():
    with dg.DagsterInstance.ephemeral() as instance:
        snapshot = "2026-12-01T03:00:00Z"
        assert request(instance, **{"seaway/snapshot": snapshot, "dagster/run_key": "x"}).tags == {"seaway/snapshot": snapshot}
