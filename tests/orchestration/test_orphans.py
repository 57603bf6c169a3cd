"""The sweep on real jobs: it ends what a person no longer wants, and leaves alone whatever somebody may come back for."""

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import psutil
import pytest

from assets.wanted import remember_who_wants
from infra.artifacts.lease import StalenessObserver, attempts, claim
from orchestration.orphans import orphans, sweep
from tests.infra.dispatch.builders import processes_of
from tests.orchestration.conftest import SmallLineage
from tests.orchestration.test_dispatch_in_dagster import interrupt_when_it_runs, worker


@pytest.fixture
def gate(small: SmallLineage) -> Path:
    folder = small.root / "gate"
    folder.mkdir()
    small.gate = str(folder)
    return folder


@pytest.fixture
def left_behind(small: SmallLineage, gate: Path) -> dg.DagsterRun:
    """A run that failed while its job runs on."""
    thread = interrupt_when_it_runs(small, gate, None)
    result = small.materialize("single")
    thread.join()
    assert psutil.pid_exists(worker(gate))
    return result.dagster_run


def address_of(small: SmallLineage) -> str:
    resolved = small.factory.resolve("single", None)
    return small.factory.store.address("single", None, resolved.recipe)


def swept(small: SmallLineage) -> list[str]:
    return sweep(small.instance, small.factory, StalenessObserver(), None)[0]


def delete(small: SmallLineage, run: dg.DagsterRun) -> None:
    small.instance.delete_run(run.run_id)


def cancel(small: SmallLineage, run: dg.DagsterRun) -> None:
    """As `MARK_AS_CANCELED_IMMEDIATELY` does, with no process to hear of it."""
    small.instance.report_run_canceled(small.instance.get_run_by_id(run.run_id))  # type: ignore[arg-type]


@pytest.mark.parametrize("by", [delete, cancel], ids=["deleted", "canceled"])
def test_the_job_of_a_run_that_a_person_ended_is_ended_too(
    small: SmallLineage, gate: Path, left_behind: dg.DagsterRun, by: Callable[[SmallLineage, dg.DagsterRun], None]
):
    by(small, left_behind)
    (what,) = swept(small)
    assert what.startswith("single-")
    assert what.endswith("-a1: cancelled, because its run was cancelled")
    assert [process for process in processes_of(gate) if "infra" in " ".join(process.cmdline())] == []
    assert [record.ended for record in attempts(address_of(small))] == ["cancelled"]
    assert swept(small) == []


def test_the_job_of_a_run_that_failed_is_kept_for_the_next_one(small: SmallLineage, gate: Path, left_behind: dg.DagsterRun):
    assert swept(small) == []
    assert psutil.pid_exists(worker(gate))
    (gate / "open").touch()
    assert small.materialize("single").success


def test_a_job_that_another_run_came_for_is_kept_though_the_first_run_was_deleted(
    small: SmallLineage, gate: Path, left_behind: dg.DagsterRun
):
    job = small.defs.resolve_implicit_global_asset_job_def()
    newer = small.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    remember_who_wants(small.instance, address_of(small), newer.run_id)
    delete(small, left_behind)
    assert swept(small) == []
    small.factory.cancel(small.factory.job(small.factory.resolve("single", None)))


def test_the_job_of_somebody_elses_dagster_is_nobodys_orphan(small: SmallLineage, gate: Path, left_behind: dg.DagsterRun):
    with dg.DagsterInstance.ephemeral() as other:
        assert sweep(other, small.factory, StalenessObserver(), None)[0] == []
    small.factory.cancel(small.factory.job(small.factory.resolve("single", None)))


def test_what_a_dead_dispatcher_left_beside_its_artifact_is_removed_once_nobody_writes_there(small: SmallLineage):
    assert small.materialize("single").success
    address = Path(address_of(small))
    for folder in (".scratch", "attempt-00000000000000ff"):
        (address / folder).mkdir()
        (address / folder / "part").write_text("x")
    writing = claim(str(address), uid="f" * 16, after=1)
    assert swept(small) == [], "an attempt without an end may be writing"
    writing.end("crashed")
    assert swept(small) == [f"{address}: 2 folders of lost attempts removed"]
    assert swept(small) == []
    assert small.factory.store.find("single", None, address.name) is not None


def test_a_sweep_goes_round_in_pieces(small: SmallLineage):
    """Each look stops after one folder; together they see every asset and partition."""
    for partition in ("a", "b"):
        address = small.factory.store.address("counted", partition, "0123456789abcdef")
        claim(address, uid="0" * 15 + "1", after=0, extra={"backend": small.factory.backend.identity, "job_id": f"counted-{partition}-a1"})
    observer = StalenessObserver(clock=iter([0.0, 0.0, 1000.0, 1000.0]).__next__)
    cursor, found = None, []
    for _ in range(4):
        done, cursor = sweep(small.instance, small.factory, observer, cursor, look_s=0)
        found += done
    assert found == [f"counted-{partition}-a1: ended as never_started" for partition in ("a", "b")]


def test_the_sensor_says_what_it_swept(small: SmallLineage, left_behind: dg.DagsterRun):
    delete(small, left_behind)
    context = dg.build_sensor_context(instance=small.instance, resources={"factory": small.factory})
    skipped = orphans(context)
    assert isinstance(skipped, dg.SkipReason)
    assert skipped.skip_message == "1 orphans swept, 0 lost runs ended"
    assert context.cursor
