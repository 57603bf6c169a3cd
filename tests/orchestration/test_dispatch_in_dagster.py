"""An asset's body on real jobs: reuse, failures in one sentence, blocking checks, and what an interrupt means."""

import os
import signal
import threading
import time
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster._core.execution.plan.objects import StepFailureData
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

from assets.lineage import STAGES
from infra.artifacts.lease import attempts
from orchestration.errors import DemoFailedError
from orchestration.walk import materialize
from tests.orchestration.conftest import SmallLineage


def recorded(result: dg.ExecuteInProcessResult, key: str) -> tuple[str, str]:
    """How an asset was come by, and its data version, as Dagster recorded them."""
    (materialization,) = result.asset_materializations_for_node(key)
    return str(materialization.metadata["how"].value), (materialization.tags or {})["dagster/data_version"]


def failure(result: dg.ExecuteInProcessResult) -> StepFailureData:
    """Why the one step that failed did."""
    assert not result.success
    (event,) = result.get_step_failure_events()
    return event.step_failure_data


def sentence(result: dg.ExecuteInProcessResult) -> str:
    error = failure(result).error
    while error.cause is not None:
        error = error.cause
    return str(error.message).strip()


def test_a_second_materialization_reuses_the_artifact_and_has_its_data_version(small: SmallLineage):
    first, second = small.materialize("single"), small.materialize("single")
    assert first.success
    assert second.success
    artifact = small.factory.resolve("single", None).artifact
    assert artifact is not None
    assert recorded(first, "single") == ("built", artifact.digest)
    assert recorded(second, "single") == ("reused", artifact.digest)


def test_an_asset_without_partitions_stays_so_in_a_run_that_has_one(small: SmallLineage):
    assert small.materialize("single", "counted", partition="a").success
    assert small.materialize("counted", partition="b").success
    assert small.materialize("joined").success
    assert small.published() == ["counted[a]", "counted[b]", "joined", "single"]


def test_a_partitioned_asset_asks_for_its_partition(small: SmallLineage):
    assert "counted is built by partition; add --partition with one of a, b" in sentence(small.materialize("counted"))


def test_a_backfill_names_its_partition_as_a_range_of_one(small: SmallLineage):
    result = small.materialize("counted", tags={ASSET_PARTITION_RANGE_START_TAG: "b", ASSET_PARTITION_RANGE_END_TAG: "b"})
    assert result.success
    assert [materialization.partition for materialization in result.asset_materializations_for_node("counted")] == ["b"]
    assert small.published() == ["counted[b]"]


def both(small: SmallLineage) -> dg.ExecuteInProcessResult:
    """One run over both partitions, as a backfill with several partitions a run asks for it."""
    return small.materialize("counted", tags={ASSET_PARTITION_RANGE_START_TAG: "a", ASSET_PARTITION_RANGE_END_TAG: "b"})


def latest(small: SmallLineage, partition: str) -> dg.AssetMaterialization:
    filters = dg.AssetRecordsFilter(asset_key=dg.AssetKey("counted"), asset_partitions=[partition])
    (record,) = small.instance.fetch_materializations(filters, limit=1).records
    assert record.asset_materialization is not None
    return record.asset_materialization


def test_partitions_that_share_a_run_have_data_versions_of_their_own(small: SmallLineage):
    """And whatever else a run of each alone would have recorded."""
    assert small.materialize("counted", partition="a").success
    alone = latest(small, "a")
    assert both(small).success
    for partition, how in (("a", "reused"), ("b", "built")):
        artifact = small.factory.resolve("counted", partition).artifact
        found = latest(small, partition)
        assert artifact is not None
        assert (found.tags or {})["dagster/data_version"] == artifact.digest
        assert found.metadata["how"].value == how
    ignored = {"dagster/data_version"}
    assert {key: value for key, value in (latest(small, "a").tags or {}).items() if key not in ignored} == {
        key: value for key, value in (alone.tags or {}).items() if key not in ignored | {"dagster/partition"}
    }
    assert small.materialize("single").success
    assert small.materialize("joined").success, "downstream reads them as if each had been built alone"


def test_partitions_that_were_built_are_recorded_though_another_failed(small: SmallLineage):
    small.broken = "b"
    result = both(small)
    said = sentence(result)
    assert "1 of 2 partitions failed; the other 1 are recorded: b: counted[b] failed (" in said
    assert small.published() == ["counted[a]"]
    assert latest(small, "a").metadata["how"].value == "built"
    small.broken = None
    assert both(small).success
    assert latest(small, "a").metadata["how"].value == "reused"
    assert latest(small, "b").metadata["how"].value == "built"


def test_a_job_that_fails_is_told_in_one_sentence_with_its_log(small: SmallLineage):
    result = small.materialize("faulty")
    said = sentence(result)
    assert "faulty failed (" in said
    assert "the program's own mistake" in said
    metadata = failure(result).user_failure_data.metadata
    assert Path(str(metadata["log"].value)).is_file()
    assert "KeyError" in str(metadata["traceback"].value)
    assert small.published() == []


def test_what_is_missing_upstream_is_named_with_the_command_that_makes_it(small: SmallLineage):
    assert small.materialize("single").success
    said = sentence(small.materialize("joined"))
    assert "joined can't be built: counted[a], counted[b] are not published for this profile" in said
    assert "materialize them first: dg launch --assets counted --partition a" in said
    assert small.materialize("counted", partition="a").success
    assert "counted[b] is not published for this profile; materialize it first" in sentence(small.materialize("joined"))


@pytest.fixture
def too_long(small: SmallLineage) -> SmallLineage:
    """A lineage whose `single` fails its blocking check."""
    for partition in ("a", "b"):
        assert small.materialize("counted", partition=partition).success
    small.numbers = 12
    return small


def test_a_failed_blocking_check_stops_what_is_downstream(too_long: SmallLineage):
    result = too_long.materialize("single", "joined")
    assert not result.success
    assert "joined" not in too_long.published()
    assert recorded(result, "single")[0] == "built", "the artifact is there to be looked at"
    assert "is_short" in sentence(result)


def test_a_failed_warning_stops_nothing(small: SmallLineage):
    result = small.materialize("single")
    assert result.success
    assert {check.check_name: check.passed for check in result.get_asset_check_evaluations()} == {"is_short": True, "is_tiny": False}


def test_starting_again_does_not_get_past_a_failed_check(too_long: SmallLineage):
    for _ in range(2):
        with pytest.raises(DemoFailedError, match="is_short"):
            walk(too_long, "counted", "single", "joined")
    assert "joined" not in too_long.published()


def walk(small: SmallLineage, *keys: str) -> None:
    materialize(small.defs, small.factory, small.instance, [STAGES[key] for key in keys], lambda wave, todo: None)


def interrupt_when_it_runs(small: SmallLineage, gate: Path, before: dg.DagsterRunStatus | None) -> threading.Thread:
    """Send this process SIGINT, as a terminal or a redeploy would, once the job is at its gate."""

    def wait_and_interrupt() -> None:
        deadline = time.monotonic() + 60
        while not list(gate.glob("worker-*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        if before is dg.DagsterRunStatus.CANCELING:
            (run,) = small.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
            small.instance.report_run_canceling(run)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait_and_interrupt)
    thread.start()
    return thread


def worker(gate: Path) -> int:
    (mark,) = gate.glob("worker-*")
    return int(mark.name.removeprefix("worker-"))


@pytest.fixture
def gate(small: SmallLineage) -> Path:
    folder = small.root / "gate"
    folder.mkdir()
    small.gate = str(folder)
    return folder


def test_a_job_is_ended_when_a_person_terminates_its_run(small: SmallLineage, gate: Path):
    thread = interrupt_when_it_runs(small, gate, dg.DagsterRunStatus.CANCELING)
    result = small.materialize("single")
    thread.join()
    assert result.dagster_run.status == dg.DagsterRunStatus.CANCELED
    assert not psutil.pid_exists(worker(gate))
    assert small.published() == []


def test_a_job_outlives_an_interrupt_that_nobody_asked_for_and_the_next_run_attaches(small: SmallLineage, gate: Path):
    thread = interrupt_when_it_runs(small, gate, None)
    result = small.materialize("single")
    thread.join()
    assert result.dagster_run.status == dg.DagsterRunStatus.FAILURE
    assert psutil.pid_exists(worker(gate))
    (gate / "open").touch()
    again = small.materialize("single")
    assert again.success
    assert recorded(again, "single")[0] in ("attached", "reused")
    address = small.factory.resolve("single", None).artifact.url  # type: ignore[union-attr]
    assert len(attempts(address)) == 1


def test_ctrl_c_in_the_demo_leaves_no_job_behind(small: SmallLineage, gate: Path):
    thread = interrupt_when_it_runs(small, gate, None)
    with pytest.raises(DemoFailedError, match="interrupted; single was cancelled; run the same command again to go on"):
        walk(small, "single")
    thread.join()
    assert not psutil.pid_exists(worker(gate))
