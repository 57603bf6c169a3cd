"""kill -9 of the store itself, a real S3 server, at three moments of a job: it comes back, and the job ends as if nothing had been."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.artifacts.lease import attempts
from infra.artifacts.store import ArtifactStore
from infra.dispatch.budgets import Budgets
from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.engines.local import LocalBackend
from infra.dispatch.job import Job, Timeouts
from tests.infra.dispatch.builders import job_of, processes_of, wait_for
from tests.infra.dispatch.programs import TellConfig, tell
from tests.infra.dispatch.running import Running, arrived
from tests.infra.storage.seaweed import Seaweed, pointed_at, seaweed

pytestmark = [pytest.mark.faults, pytest.mark.s3]

AWAY_S = 3.0
BEATING = Timeouts(start_grace_s=120, step_s=60, kill_grace_s=2, lease_beat_s=0.2)  # many beats fall into the absence


@pytest.fixture(scope="module")
def server() -> Iterator[Seaweed]:
    with seaweed() as running, pointed_at(running.environment):
        yield running


@pytest.fixture
def store(server: Seaweed) -> ArtifactStore:
    return ArtifactStore(server.fresh_root())


@pytest.fixture
def dispatcher(store: ArtifactStore, tmp_path: Path) -> Iterator[Dispatcher]:
    yield Dispatcher(store, LocalBackend(tmp_path / "state"), Budgets(backoff_s=0.01))
    wait_for(lambda: not processes_of(tmp_path), "no process of the test is left")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    (tmp_path / "gate").mkdir()
    return tmp_path / "gate"


def undisturbed(tmp_path: Path) -> str:
    """The digest of the same job on a local disk."""
    store = ArtifactStore(str(tmp_path / "undisturbed"))
    return Dispatcher(store, LocalBackend(tmp_path / "undisturbed-state")).run(job_of(store, tell, TellConfig())).artifact.digest


def at_the_gate(dispatcher: Dispatcher, store: ArtifactStore, gate: Path) -> tuple[Job, Running, int]:
    job = job_of(store, tell, TellConfig(gate=str(gate)), timeouts=BEATING)
    running = Running(dispatcher, job)
    return job, running, arrived(gate)


def test_while_the_program_works(server: Seaweed, store: ArtifactStore, dispatcher: Dispatcher, gate: Path, tmp_path: Path):
    job, running, _ = at_the_gate(dispatcher, store, gate)
    server.kill()
    time.sleep(AWAY_S)
    server.start()
    (gate / "open").touch()
    outcome = running.result()
    assert (outcome.how, outcome.artifact.digest) == ("built", undisturbed(tmp_path))
    assert [record.ended for record in attempts(job.address)] == ["succeeded"], "absent storage ends no attempt"


def test_while_the_result_is_being_published(server: Seaweed, store: ArtifactStore, dispatcher: Dispatcher, gate: Path, tmp_path: Path):
    job, running, _ = at_the_gate(dispatcher, store, gate)
    server.kill()
    (gate / "open").touch()
    time.sleep(AWAY_S)
    server.start()
    outcome = running.result()
    assert outcome.artifact.digest == undisturbed(tmp_path)
    assert {record.ended for record in attempts(job.address)} <= {"storage_away", "succeeded"}, "never the program's fault"
    store.verify(outcome.artifact)


def test_together_with_the_worker(server: Seaweed, store: ArtifactStore, dispatcher: Dispatcher, gate: Path, tmp_path: Path):
    job, running, worker = at_the_gate(dispatcher, store, gate)
    server.kill()
    os.kill(worker, signal.SIGKILL)
    time.sleep(AWAY_S)
    server.start()
    (gate / "open").touch()
    outcome = running.result()
    assert outcome.artifact.digest == undisturbed(tmp_path)
    assert [record.ended for record in attempts(job.address)] == ["crashed", "succeeded"], "the end was recorded once storage was back"
