"""The promises of `Backend`, asked of each engine. A new one joins with its name in `ENGINES`."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.artifacts.lease import claim
from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import Backend, Handle, JobRejected
from infra.dispatch.endings import End, Ending
from infra.dispatch.engines.kubernetes.backend import KubernetesBackend
from infra.dispatch.engines.local import LocalBackend
from infra.dispatch.engines.ray.backend import RayBackend
from infra.dispatch.engines.slurm.backend import SlurmBackend
from infra.dispatch.job import Attempt, Job, Resources, job_id
from tests.infra.dispatch.builders import job_of, processes_of, wait_for
from tests.infra.dispatch.programs import CountConfig, FaultConfig, count, fail

Connect = Callable[[], Backend]


def on_this_machine(request: pytest.FixtureRequest, folder: Path) -> Connect:
    return lambda: LocalBackend(folder / "state")


def on_slurm(request: pytest.FixtureRequest, folder: Path) -> Connect:
    cluster = request.getfixturevalue("slurm")
    return lambda: SlurmBackend(cluster.config(folder / "jobs"), folder / "state")


def on_ray(request: pytest.FixtureRequest, folder: Path) -> Connect:
    cluster = request.getfixturevalue("ray")
    return lambda: RayBackend(cluster.config())


def on_kubernetes(request: pytest.FixtureRequest, folder: Path) -> Connect:
    cluster = request.getfixturevalue("kubernetes")
    return lambda: KubernetesBackend(cluster.config())


ENGINES: dict[str, Callable[[pytest.FixtureRequest, Path], Connect]] = {
    "local": on_this_machine,
    "kubernetes": on_kubernetes,
    "slurm": on_slurm,
    "ray": on_ray,
}
MARKS = {"slurm": pytest.mark.slurm, "ray": pytest.mark.ray}


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, ())) for name in sorted(ENGINES)])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """A new client of one and the same engine at each call."""
    yield ENGINES[request.param](request, tmp_path)
    wait_for(lambda: not processes_of(tmp_path), "no process of the test is left")


@pytest.fixture
def waiting(tmp_path: Path, gate: Path) -> Job:
    """A job that waits at the gate."""
    return job_of(ArtifactStore(str(tmp_path / "store")), count, CountConfig(gate=str(gate)))


def claimed(job: Job, number: int = 1) -> Attempt:
    uid = f"{number:016x}"
    claim(job.address, uid=uid, after=number - 1)
    return Attempt(number, uid)


def arrivals(gate: Path) -> list[Path]:
    return list(gate.glob("worker-*"))


def end_of(backend: Backend, handle: Handle) -> End:
    return wait_for(lambda: backend.poll(handle).end, "the end of the attempt")


def test_the_handle_can_be_made_by_anyone_who_knows_the_attempt(connect: Callable[[], Backend], waiting: Job, gate: Path):
    (gate / "open").touch()
    attempt, backend = claimed(waiting), connect()
    handle = backend.submit_or_attach(waiting, attempt)
    assert handle == Handle(job_id(waiting, 1), attempt)
    assert end_of(connect(), handle).ending is Ending.SUCCEEDED


def test_submitting_twice_is_attaching_during_and_after_the_job(connect: Callable[[], Backend], waiting: Job, gate: Path):
    attempt = claimed(waiting)
    handle = connect().submit_or_attach(waiting, attempt)
    wait_for(lambda: arrivals(gate), "the worker")
    assert connect().submit_or_attach(waiting, attempt) == handle
    assert connect().poll(handle).phase == "running"
    (gate / "open").touch()
    first = end_of(connect(), handle)
    assert connect().submit_or_attach(waiting, attempt) == handle
    assert connect().poll(handle).end == first
    assert len(arrivals(gate)) == 1


def test_racing_submitters_start_one_process(connect: Callable[[], Backend], waiting: Job, gate: Path):
    attempt = claimed(waiting)
    handles: list[Handle] = []
    racers = [threading.Thread(target=lambda: handles.append(connect().submit_or_attach(waiting, attempt))) for _ in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    wait_for(lambda: arrivals(gate), "the worker")
    (gate / "open").touch()
    assert end_of(connect(), handles[0]).ending is Ending.SUCCEEDED
    assert len(set(handles)) == 1
    assert len(arrivals(gate)) == 1


def test_engines_that_see_the_same_jobs_have_one_identity(connect: Callable[[], Backend]):
    assert connect().identity == connect().identity


def test_a_cancel_is_confirmed_and_stays(connect: Callable[[], Backend], waiting: Job, gate: Path, tmp_path: Path):
    handle = connect().submit_or_attach(waiting, claimed(waiting))
    wait_for(lambda: arrivals(gate), "the worker")
    assert connect().cancel(handle) is True
    assert processes_of(tmp_path) == []
    assert connect().poll(handle).phase == "ended"
    assert connect().cancel(handle) is True


def test_a_cancel_of_what_was_never_submitted_is_confirmed(connect: Callable[[], Backend], waiting: Job):
    assert connect().cancel(Handle(job_id(waiting, 1), Attempt(1, "0" * 16))) is True


def test_an_attempt_cancelled_at_once_leaves_nothing(connect: Callable[[], Backend], waiting: Job, tmp_path: Path):
    handle = connect().submit_or_attach(waiting, claimed(waiting))
    assert connect().cancel(handle) is True
    assert processes_of(tmp_path) == []
    assert connect().poll(handle).phase == "ended"


def test_the_log_holds_what_the_job_printed_and_can_be_found(connect: Callable[[], Backend], tmp_path: Path):
    job = job_of(ArtifactStore(str(tmp_path / "store")), fail, FaultConfig(fault="raise"))
    backend = connect()
    handle = backend.submit_or_attach(job, claimed(job))
    end = end_of(backend, handle)
    assert (end.ending, end.what) == (Ending.APPLICATION_ERROR, 'KeyError: "the program\'s own mistake"')
    assert "the program's own mistake" in backend.logs(handle, 5)
    assert len(backend.logs(handle, 2).splitlines()) == 2
    assert job_id(job, 1) in backend.log_location(handle)


def test_resources_that_it_does_not_have_are_refused_before_anything_starts(connect: Callable[[], Backend], waiting: Job, tmp_path: Path):
    job = waiting.model_copy(update={"resources": Resources(device="v5p-4096")})
    with pytest.raises(JobRejected, match="v5p-4096"):
        connect().submit_or_attach(job, claimed(job))
    assert processes_of(tmp_path) == []
