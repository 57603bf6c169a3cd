"""Gangs that meet and compute across Slurm's nodes: the rendezvous, the collective, and the loss of one rank."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.artifacts.lease import attempts
from infra.artifacts.program import Program
from infra.artifacts.store import ArtifactStore
from infra.dispatch.budgets import Budgets
from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.engines.slurm.backend import SlurmBackend
from infra.dispatch.job import GIB, Resources, Timeouts
from tests.infra.dispatch.builders import job_of, processes_of, wait_for
from tests.infra.dispatch.gang_programs import GangConfig, expected_total, jax_march, march
from tests.infra.dispatch.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slurm

PATIENT = Timeouts(start_grace_s=120, step_s=60, kill_grace_s=2, lease_beat_s=1)


@pytest.fixture
def strict(slurm: SlurmCluster, store: ArtifactStore, tmp_path: Path) -> Iterator[Dispatcher]:
    """A dispatcher that gives up at the first loss that is not a warm restart."""
    yield Dispatcher(store, SlurmBackend(slurm.config(tmp_path / "jobs"), tmp_path / "state"), Budgets(infrastructure=0))
    wait_for(lambda: not processes_of(tmp_path), "no process of the test is left")


@pytest.mark.parametrize(("built", "ranks"), [(march, 3), (jax_march, 2)], ids=["tcp", "jax"])
def test_a_gang_across_nodes_that_loses_a_rank_goes_on_from_its_newest_checkpoint(
    strict: Dispatcher, store: ArtifactStore, tmp_path: Path, built: Program, ranks: int
):
    marks = tmp_path / "marks"
    marks.mkdir()
    resources = Resources(device=f"cpux{ranks}", cpus=16, memory_bytes=2 * GIB, env={"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"})
    job = job_of(store, built, GangConfig(marks=str(marks), fault="kill"), timeouts=PATIENT, resources=resources)
    outcome = strict.run(job)
    assert [record.ended for record in attempts(job.address)] == ["crashed", "succeeded"]
    assert outcome.artifact.read_json("result.json") == {"total": expected_total(GangConfig(), ranks)}
    logs = [path.read_text() for path in sorted((tmp_path / "jobs").glob("*/*/log.txt"))]
    assert "rank 1" in logs[0]
    assert "goes on from step 2" in logs[1]
