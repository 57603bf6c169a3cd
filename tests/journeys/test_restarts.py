"""A job outlives every part of Dagster: whoever comes back adopts it, and nobody starts it twice."""

import signal
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES

from tests.journeys.lab import Lab
from tests.journeys.plant import AGAIN, BACKFILL, Plant, end, plant_of, wait_for

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

SUCCESS, FAILURE, STARTED = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTED


@pytest.fixture
def plant(lab: Lab) -> Iterator[Plant]:
    with plant_of(lab) as plant:
        yield plant


def how_of(plant: Plant, asset: str) -> str:
    """How the newest materialization of an asset came by its artifact."""
    (record,) = plant.instance.fetch_materializations(dg.AssetKey(asset), limit=1).records
    assert record.asset_materialization is not None
    return str(record.asset_materialization.metadata["how"].value)


def test_one_job_outlives_every_part_of_dagster(plant: Plant):
    first = plant.launch("slow", "after")
    worker = plant.worker_at(plant.gate)

    plant.restart("daemon", signal.SIGKILL)
    plant.restart("web", signal.SIGTERM)
    assert plant.status(first) is STARTED

    plant.run_worker(first).kill()
    assert plant.ends(first) is FAILURE, "the code server reports a run whose process died"
    second = plant.retry_of(first)
    adopter = plant.run_worker(second)
    assert plant.held_slots("host") == {second}, "the one slot went from the dead run to its successor"

    plant.restart("code", signal.SIGKILL)
    assert adopter.is_running(), "a run does not need the server that started it"
    adopter.kill()
    assert plant.ends(second) is FAILURE, "nobody saw it die; the sweep finds its process gone"
    third = plant.retry_of(second)
    plant.run_worker(third)

    assert plant.worker_at(plant.gate) == worker
    (plant.gate / "open").touch()
    assert plant.ends(third) is SUCCESS
    assert [record.ended for record in plant.attempts("slow")] == ["succeeded"], "one attempt, adopted twice"
    assert how_of(plant, "slow") == "attached"
    assert how_of(plant, "after") == "built"
    plant.require_no_leak()


def test_a_failed_run_is_executed_again_from_its_failure_and_adopts_its_job(plant: Plant):
    """By a person, where Dagster's own retries are used up; and the steps before the failure are not repeated."""
    first = plant.launch("slow", "after", dagster_max_retries="0")
    worker = plant.worker_at(plant.gate)
    plant.run_worker(first).kill()
    assert plant.ends(first) is FAILURE
    second = plant.query(AGAIN, run=first)["run"]["runId"]
    plant.run_worker(second)
    assert plant.worker_at(plant.gate) == worker
    (plant.gate / "open").touch()
    assert plant.ends(second) is SUCCESS
    assert len(plant.attempts("slow")) == 1
    assert how_of(plant, "slow") == "attached"
    plant.require_no_leak()


def end_of(plant: Plant, backfill: str) -> str | None:
    """How a backfill ended, once it has."""
    found = plant.instance.get_backfill(backfill)
    assert found is not None
    return found.status.value if found.status in BULK_ACTION_TERMINAL_STATUSES else None


def test_a_backfill_goes_on_across_a_restart_with_every_job_adopted(plant: Plant):
    backfill = plant.query(BACKFILL, asset="parts", partitions=["a", "b", "c", "d"])["backfillId"]
    gates = [plant.gate / "parts" / key for key in "abcd"]
    workers = [plant.worker_at(gate) for gate in gates]
    runs = plant.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}))
    for run in runs[:2]:
        plant.run_worker(run.run_id).kill()
    for part in ("daemon", "web", "code"):
        plant.stop(part, signal.SIGKILL)
    end(plant.run_worker(runs[2].run_id))
    plant.start("code", "daemon", "web")
    for gate in gates:
        (gate / "open").touch()
    ended = wait_for("the backfill ends", lambda: end_of(plant, backfill), plant.log)
    assert ended == "COMPLETED_SUCCESS", plant.log.read_text()[-6000:]
    assert [record.ended for record in plant.attempts("parts")] == ["succeeded"] * 4
    assert [plant.worker_mark(gate) for gate in gates] == [f"worker-{worker.pid}" for worker in workers]
    plant.require_no_leak()
