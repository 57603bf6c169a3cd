"""Terminate in the UI: the job is gone, confirmed by its engine, before the run says so."""

import signal
from collections.abc import Iterator

import dagster as dg
import pytest

from tests.journeys.lab import Lab
from tests.journeys.plant import TERMINATE, Plant, plant_of, wait_for

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

CANCELED = dg.DagsterRunStatus.CANCELED


@pytest.fixture
def plant(lab: Lab) -> Iterator[Plant]:
    with plant_of(lab) as plant:
        yield plant


def jobs_of(plant: Plant) -> list[int]:
    """Processes of jobs: supervisors and workers."""
    return [process.pid for process in plant.lab.jobs() if "infra." in " ".join(process.cmdline())]


def test_a_terminated_run_is_canceled_once_nothing_of_its_job_is_left(plant: Plant):
    run = plant.launch("slow", "after")
    plant.worker_at(plant.gate)
    plant.query(TERMINATE, run=run)
    wait_for("the run is canceled", lambda: plant.status(run) is CANCELED, plant.log)
    assert jobs_of(plant) == []
    assert [record.ended for record in plant.attempts("slow")] == ["cancelled"]
    plant.require_no_leak()

    (plant.gate / "open").touch()
    again = plant.launch("slow")
    assert plant.ends(again) is dg.DagsterRunStatus.SUCCESS
    assert [record.ended for record in plant.attempts("slow")] == ["cancelled", "succeeded"]


def test_a_run_that_adopted_its_job_ends_it_too(plant: Plant):
    first = plant.launch("slow")
    plant.worker_at(plant.gate)
    plant.run_worker(first).kill()
    second = plant.retry_of(first)
    plant.run_worker(second)
    plant.query(TERMINATE, run=second)
    wait_for("the run is canceled", lambda: plant.status(second) is CANCELED, plant.log)
    assert jobs_of(plant) == []
    plant.require_no_leak()


def test_a_redeploy_of_the_code_server_ends_no_job(plant: Plant):
    """SIGTERM, as every deployment tool sends it: the server waits for its runs or leaves them, and their jobs go on."""
    run = plant.launch("slow")
    worker = plant.worker_at(plant.gate)
    plant.running["code"].send_signal(signal.SIGTERM)
    assert worker.is_running()
    (plant.gate / "open").touch()
    assert plant.ends(run) is dg.DagsterRunStatus.SUCCESS
    assert len(plant.attempts("slow")) == 1
