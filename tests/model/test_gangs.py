"""A run of several processes, as the dispatcher starts them: the run of one process."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.lease import attempts
from infra.artifacts.store import ArtifactStore
from infra.dispatch.budgets import Budgets
from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.engines.local import LocalBackend
from infra.dispatch.job import Job, Resources, Timeouts
from model.arrays import decode
from model.config import TrainConfig
from model.finish import MODEL, OPTIMIZER
from model.mesh_config import MeshConfig
from model.tracker import read_rows
from model.train import train
from tests.infra.dispatch.builders import job_of, processes_of, wait_for
from tests.model.devices import device_environment, on_devices
from tests.model.lives import CONFIG

pytestmark = pytest.mark.faults

PATIENT = Timeouts(start_grace_s=250, step_s=250, kill_grace_s=2, lease_beat_s=1)


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "store"))


@pytest.fixture
def dispatcher(store: ArtifactStore, tmp_path: Path) -> Iterator[Dispatcher]:
    yield Dispatcher(store, LocalBackend(tmp_path / "state"), Budgets(backoff_s=0.01))
    wait_for(lambda: not processes_of(tmp_path), "no process of the test is left")


@pytest.fixture
def gang(store: ArtifactStore, data: dict[str, Artifact]) -> Callable[..., Job]:
    """Makes the job of a run by so many processes."""
    published = {name: published_in(store, name, artifact) for name, artifact in data.items()}

    def make(ranks: int, config: TrainConfig = CONFIG) -> Job:
        resources = Resources(device=f"cpux{ranks}", env=device_environment(1))
        return job_of(store, train, config, asset=f"hero-{ranks}", inputs=dict(published), timeouts=PATIENT, resources=resources)

    return make


def published_in(store: ArtifactStore, name: str, artifact: Artifact) -> Artifact:
    """A copy of an artifact where its recipe says it lies."""
    address = store.address(name, None, artifact.manifest.recipe)
    shutil.copytree(artifact.url, address)
    found = store.open_at(address)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Artifact]) -> Artifact:
    folder = tmp_path_factory.mktemp("alone")
    done = on_devices(1, "tests.model.lives", str(folder), data["store"].url, data["mixture"].url)
    assert done.returncode == 0, done.stderr
    return Artifact.open_at(str(folder))


def rows(artifact: Artifact, name: str) -> list[dict[str, Any]]:
    with artifact.open(name) as stream:
        return read_rows(stream)


def arrays(artifact: Artifact) -> dict[str, Any]:
    found = {}
    for name in (MODEL, OPTIMIZER):
        with artifact.open(name) as stream:
            found |= decode(stream.read())
    return found


@pytest.mark.parametrize(("ranks", "mesh"), [(2, MeshConfig()), (4, MeshConfig(data=2, expert=2))], ids=["2, data", "4, data x expert"])
def test_a_run_of_several_processes_is_the_run_of_one(
    dispatcher: Dispatcher, gang: Callable[..., Job], alone: Artifact, ranks: int, mesh: MeshConfig
) -> None:
    outcome = dispatcher.run(gang(ranks, CONFIG.model_copy(update={"mesh": mesh})))
    assert outcome.attempts == 1
    together = outcome.artifact
    assert set(together.names) == set(alone.names)
    for ours, theirs in zip(rows(together, "metrics.jsonl"), rows(alone, "metrics.jsonl"), strict=True):
        assert abs(ours["loss"] - theirs["loss"]) < 2e-6
        assert ours["tokens"] == theirs["tokens"]
    for ours, theirs in zip(rows(together, "evals.jsonl"), rows(alone, "evals.jsonl"), strict=True):
        assert abs(ours["macro_nats_per_token"] - theirs["macro_nats_per_token"]) < 2e-6
    expected = arrays(alone)
    for name, array in arrays(together).items():
        assert array.shape == expected[name].shape
        assert np.max(np.abs(array - expected[name])) <= 1e-4 * max(float(np.max(np.abs(expected[name]))), 1e-3), name


def test_a_gang_that_loses_a_process_ends_in_the_bytes_of_one_that_did_not(
    dispatcher: Dispatcher, gang: Callable[..., Job], store: ArtifactStore
) -> None:
    config = CONFIG.model_copy(update={"stop_after_steps": 40})  # the same compiled step, for long enough to be killed in
    undisturbed = dispatcher.run(gang(2, config))
    job = gang(2, config)
    job = job.model_copy(update={"asset": "killed", "address": store.address("killed", None, job.recipe)})
    killer = threading.Thread(target=kill_once_saved, args=(job.address, 1))
    killer.start()
    outcome = dispatcher.run(job)
    killer.join()
    assert [record.ended for record in attempts(job.address)] == ["crashed", "succeeded"]
    assert outcome.artifact.digest == undisturbed.artifact.digest


def kill_once_saved(address: str, rank: int) -> None:
    """SIGKILL one rank of a job as soon as a checkpoint of it is committed."""
    process = wait_for(lambda: next(iter(ranks_of(address, rank)), None), f"rank {rank} of {address}")
    deadline = time.monotonic() + PATIENT.start_grace_s
    while not any(Path(address).glob("**/COMMITTED.json")):
        assert time.monotonic() < deadline, "no checkpoint in time"
        time.sleep(0.001)
    process.kill()


def ranks_of(address: str, rank: int) -> list[psutil.Process]:
    found = []
    for process in processes_of(Path(address)):
        with suppress(psutil.NoSuchProcess):
            if process.environ().get("SEAWAY_RANK") == str(rank) and "infra.dispatch.worker" in " ".join(process.cmdline()):
                found.append(process)
    return found
