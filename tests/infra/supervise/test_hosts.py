"""A gang over several supervisors, one per host, as an engine starts them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.artifacts.lease import attempts, claim
from infra.artifacts.store import ArtifactStore
from infra.dispatch.endings import End, Ending
from infra.dispatch.environment import environment
from infra.dispatch.gang import gang_end, read_ends, read_fallen
from infra.dispatch.job import Attempt, Job, Resources, Timeouts, attempt_directory, write_spec
from tests.infra.dispatch.builders import job_of, processes_of, wait_for
from tests.infra.dispatch.gang_programs import GangConfig, expected_total, march

pytestmark = pytest.mark.faults

PATIENT = Timeouts(start_grace_s=120, step_s=60, kill_grace_s=2, lease_beat_s=1)
UID = "e" * 16
Start = Callable[..., list[subprocess.Popen[str]]]


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "store"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the supervisors of some hosts; whatever a test leaves is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(job: Job, *hosts: int) -> list[subprocess.Popen[str]]:
        claim(job.address, uid=UID, after=0)
        url = write_spec(job, Attempt(1, UID))
        for host in hosts:
            command = [sys.executable, "-P", "-m", "infra.supervise", url, "--host", str(host)]
            with (tmp_path / f"log-{host}.txt").open("w") as log:
                one = subprocess.Popen(
                    command, env=environment(job.resources, os.environ), stdout=log, stderr=log, text=True, start_new_session=True
                )
            started.append(one)
        return started

    yield begin
    for process in started:
        process.kill()
        process.wait()
    wait_for(lambda: not processes_of(tmp_path), "no process of the test is left")


def gang(store: ArtifactStore, tmp_path: Path, hosts: int = 2, timeouts: Timeouts = PATIENT, **config: object) -> Job:
    found = GangConfig(marks=str(tmp_path), **config)  # type: ignore[arg-type]
    return job_of(store, march, found, timeouts=timeouts, resources=Resources(device=f"cpux{hosts}"))


def conclusion(job: Job, hosts: int) -> End:
    directory = attempt_directory(job.address, 1)
    return gang_end(read_ends(directory, hosts), hosts, read_fallen(directory), None)


def test_each_host_records_its_end_and_the_attempt_has_succeeded_when_host_0_has(store: ArtifactStore, tmp_path: Path, start: Start):
    job = gang(store, tmp_path)
    assert [process.wait(120) for process in start(job, 0, 1)] == [0, 0]
    artifact = store.open_at(job.address)
    assert artifact is not None
    assert artifact.read_json("result.json") == {"total": expected_total(GangConfig(), 2)}
    assert read_ends(attempt_directory(job.address, 1), 2).keys() == {0, 1}
    assert read_fallen(attempt_directory(job.address, 1)) is None
    assert conclusion(job, 2).ending is Ending.SUCCEEDED
    assert attempts(job.address)[0].ended is None, "only whoever sees all hosts may say that the attempt is over"


def test_a_rank_killed_on_one_host_ends_the_other_host_as_a_symptom(store: ArtifactStore, tmp_path: Path, start: Start):
    job = gang(store, tmp_path, fault="kill", once=False)
    codes = [process.wait(120) for process in start(job, 0, 1)]
    assert codes == [76, 134]
    end = conclusion(job, 2)
    assert (end.ending, end.what) == (Ending.CRASHED, "host 1: rank 1: the process was killed by SIGKILL")
    assert end.saved == 1, "though the rank that saved was not the one that fell"


def test_a_rank_stopped_on_one_host_stalls_the_gang_and_leaves_nothing_running(store: ArtifactStore, tmp_path: Path, start: Start):
    job = gang(store, tmp_path, fault="stop", once=False, timeouts=PATIENT.model_copy(update={"step_s": 4.0, "kill_grace_s": 0.5}))
    codes = {process.wait(120) for process in start(job, 0, 1)}
    assert codes <= {124, 76}
    assert conclusion(job, 2).ending is Ending.STALLED
    assert "sum_of" in (tmp_path / "log-0.txt").read_text(), "who waits for the stopped rank shows where, whichever host was first"


def test_a_host_whose_supervisor_was_killed_is_missing_and_its_peers_end(store: ArtifactStore, tmp_path: Path, start: Start):
    job = gang(store, tmp_path, fault="withdraw", once=False)
    first, second = start(job, 0, 1)
    wait_for(lambda: "goes wrong" in (tmp_path / "log-1.txt").read_text(), "rank 1 withdraws")
    second.kill()
    assert first.wait(120) == 76, "a connection that breaks in a gang is a symptom"
    assert conclusion(job, 2).ending is Ending.NODE_LOST


def test_a_preemption_of_one_host_is_the_end_of_all(store: ArtifactStore, tmp_path: Path, start: Start):
    job = gang(store, tmp_path, fault="withdraw", once=False)
    first, second = start(job, 0, 1)
    wait_for(lambda: "goes wrong" in (tmp_path / "log-1.txt").read_text(), "rank 1 withdraws")
    second.send_signal(signal.SIGTERM)
    assert [first.wait(120), second.wait(120)] == [76, 143]
    assert conclusion(job, 2).ending is Ending.PREEMPTED


def test_a_host_that_the_gang_does_not_have_is_refused(store: ArtifactStore, tmp_path: Path, start: Start):
    (process,) = start(gang(store, tmp_path), 2)
    assert process.wait(60) == 1
    assert "there is no host 2 if it is spread over 2 hosts" in (tmp_path / "log-2.txt").read_text()
