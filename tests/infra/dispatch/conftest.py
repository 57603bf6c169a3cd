from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.artifacts.store import ArtifactStore
from infra.dispatch.budgets import Budgets
from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.engines.local import LocalBackend
from tests.infra.dispatch import ray_cluster
from tests.infra.dispatch.builders import processes_of, wait_for
from tests.infra.dispatch.kubernetes_cluster import Cluster, cluster
from tests.infra.dispatch.ray_cluster import RayCluster
from tests.infra.dispatch.slurm_cluster import SlurmCluster, slurm_cluster


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A folder at which a counting worker says who it is, and waits to be let through."""
    folder = tmp_path / "gate"
    folder.mkdir()
    return folder


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "store"))


@pytest.fixture
def dispatcher(store: ArtifactStore, tmp_path: Path) -> Iterator[Dispatcher]:
    yield Dispatcher(store, LocalBackend(tmp_path / "state"), Budgets(backoff_s=0.01))
    wait_for(lambda: not processes_of(tmp_path), "no process of the test is left")


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def started_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with ray_cluster.running(tmp_path_factory.mktemp("ray")) as cluster:
        yield cluster


@pytest.fixture
def ray(started_ray: RayCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    """The cluster, from within its network, with all its nodes."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", ray_cluster.TOKEN)
    started_ray.replace_lost_nodes()
    with started_ray.network():
        yield started_ray


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Cluster]:
    """A fresh emulated cluster."""
    with cluster() as started:
        yield started
    wait_for(lambda: not processes_of(tmp_path), "no process of the test is left")
