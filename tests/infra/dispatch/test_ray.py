"""A real Ray cluster of a head and three nodes: gangs, losses, and what becomes of a job when Ray itself is gone."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from infra.artifacts.lease import attempts, claim
from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import EngineUnavailable, Handle, JobRejected
from infra.dispatch.budgets import Budgets
from infra.dispatch.dispatcher import Dispatcher, JobCancelled, JobFailed
from infra.dispatch.endings import End, Ending
from infra.dispatch.engines.ray.backend import RayBackend, submission_id
from infra.dispatch.engines.ray.config import NodePool
from infra.dispatch.gang import read_fallen
from infra.dispatch.job import GIB, Attempt, Job, Resources, attempt_directory, job_id
from tests.infra.dispatch.builders import job_of, processes_of, wait_for
from tests.infra.dispatch.programs import FaultConfig, fail
from tests.infra.dispatch.ray_cluster import TOKEN, RayCluster, address
from tests.infra.dispatch.ray_programs import MeetConfig, meet
from tests.infra.dispatch.running import Running

pytestmark = pytest.mark.ray

Connect = Callable[..., RayBackend]
Told = dict[str, str]
UID = "a" * 16
DEADLINE_S = 120.0  # each of Ray's jobs starts a driver that imports Ray


@pytest.fixture
def connect(ray: RayCluster, tmp_path: Path) -> Iterator[Connect]:
    """A new client at each call."""
    yield lambda **changes: RayBackend(ray.config(**changes))
    wait_for(lambda: not processes_of(tmp_path), "no process of the test is left")


@pytest.fixture
def dispatcher(store: ArtifactStore, connect: Connect) -> Dispatcher:
    return Dispatcher(store, connect(), Budgets(infrastructure=3, backoff_s=0.01))


def meeting(store: ArtifactStore, gate: Path | None, device: str = "cpu", *, asset: str = "met", children: int = 0) -> Job:
    config = MeetConfig(gate=str(gate) if gate else None, children=children)
    return job_of(store, meet, config, asset=asset, resources=Resources(device=device, memory_bytes=GIB))


def arrivals(gate: Path) -> dict[str, Told]:
    """What each rank said that came to the gate, in any attempt."""
    return {path.name: json.loads(path.read_text()) for path in sorted(gate.glob("rank-*"))}


def arrived(gate: Path, ranks: int, attempt: int = 1) -> dict[str, Told]:
    names = {f"rank-{rank}-of-attempt-{attempt}" for rank in range(ranks)}
    wait_for(lambda: names <= arrivals(gate).keys(), f"{ranks} ranks of attempt {attempt} at the gate")
    return arrivals(gate)


def claimed(job: Job) -> Attempt:
    claim(job.address, uid=UID, after=0)
    return Attempt(1, UID)


def end_of(backend: RayBackend, handle: Handle) -> End:
    return wait_for(lambda: backend.poll(handle).end, "the end of the attempt")


def endings(job: Job) -> list[str | None]:
    return [record.ended for record in attempts(job.address)]


def first_handle(job: Job) -> Handle:
    return Handle(job_id(job, 1), Attempt(1, attempts(job.address)[0].uid))


def workers(folder: Path, host_address: str) -> list[psutil.Process]:
    """The workers of the test on one node."""
    found = []
    for process in processes_of(folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "infra.dispatch.worker" in process.cmdline() and process.environ()["SEAWAY_HOST_ADDRESS"] == host_address:
                found.append(process)
    return found


def expected_digest(store: ArtifactStore, dispatcher: Dispatcher, tmp_path: Path) -> str:
    """What an undisturbed process writes."""
    from infra.dispatch.engines.local import LocalBackend

    job = meeting(store, None, asset="twin")
    return Dispatcher(store, LocalBackend(tmp_path / "local")).run(job).artifact.digest


def test_a_gang_has_a_node_for_each_host_and_a_second_one_waits_until_all_of_it_can_start(
    connect: Connect, store: ArtifactStore, tmp_path: Path
):
    backend, gates = connect(), [tmp_path / "first", tmp_path / "second"]
    jobs = [meeting(store, gates[0], "cpux3", asset="first"), meeting(store, gates[1], "cpux2", asset="second")]
    for gate in gates:
        gate.mkdir()
    first = backend.submit_or_attach(jobs[0], claimed(jobs[0]))
    told = list(arrived(gates[0], 3).values())
    assert [(rank["SEAWAY_RANK"], rank["SEAWAY_RANKS"], rank["SEAWAY_LOCAL_RANK"]) for rank in told] == [
        ("0", "3", "0"),
        ("1", "3", "0"),
        ("2", "3", "0"),
    ]
    assert len({rank["SEAWAY_HOST_ADDRESS"] for rank in told}) == 3
    second = backend.submit_or_attach(jobs[1], claimed(jobs[1]))
    wait_for(lambda: "waiting for 2 x" in backend.logs(second, 5), "the second gang's driver")
    assert backend.poll(second).phase == "pending"
    assert arrivals(gates[1]) == {}
    (gates[0] / "open").touch()
    assert end_of(backend, first).ending is Ending.SUCCEEDED
    arrived(gates[1], 2)
    assert backend.poll(second).phase == "running"
    (gates[1] / "open").touch()
    assert end_of(backend, second).ending is Ending.SUCCEEDED


def test_a_rank_that_dies_ends_its_gang_and_is_the_cause(dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path):
    job = meeting(store, gate, "cpux2")
    running = Running(dispatcher, job)
    told = arrived(gate, 2)
    (lost,) = workers(tmp_path, told["rank-1-of-attempt-1"]["SEAWAY_HOST_ADDRESS"])
    lost.kill()
    arrived(gate, 2, attempt=2)
    (gate / "open").touch()
    assert running.result(DEADLINE_S).artifact.digest == expected_digest(store, dispatcher, tmp_path)
    assert endings(job) == ["crashed", "succeeded"]
    fallen = read_fallen(attempt_directory(job.address, 1))
    assert fallen is not None
    assert fallen.host == 1


def test_a_lost_node_costs_infrastructure_and_the_next_attempt_gives_the_same_bytes(
    ray: RayCluster, dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path
):
    job = meeting(store, gate, "cpux3")
    running = Running(dispatcher, job)
    told = arrived(gate, 3)
    number = next(node for node in ray.nodes if address(node) == told["rank-2-of-attempt-1"]["SEAWAY_HOST_ADDRESS"])
    ray.kill_node(number)
    wait_for(lambda: endings(job)[0] is not None, "the first attempt's end")
    assert workers(tmp_path, address(number)) == []
    ray.replace_lost_nodes()
    arrived(gate, 3, attempt=2)
    (gate / "open").touch()
    outcome = running.result(DEADLINE_S)
    assert endings(job) == ["node_lost", "succeeded"]
    assert outcome.artifact.digest == expected_digest(store, dispatcher, tmp_path)


def test_a_killed_driver_leaves_nothing_and_costs_infrastructure(
    ray: RayCluster, dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path
):
    job = meeting(store, gate, "cpux2", children=1)
    running = Running(dispatcher, job)
    arrived(gate, 2)
    first = {process.pid for process in processes_of(tmp_path)}
    ray.process("infra.dispatch.engines.ray.launch", job.address).kill()
    wait_for(lambda: endings(job)[0] is not None, "the first attempt's end")
    assert first.isdisjoint(process.pid for process in processes_of(tmp_path))
    arrived(gate, 2, attempt=2)
    (gate / "open").touch()
    running.result(DEADLINE_S)
    assert endings(job) == ["node_lost", "succeeded"]


def test_a_killed_supervisor_leaves_nothing_and_costs_infrastructure(
    dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path
):
    job = meeting(store, gate, children=1)
    running = Running(dispatcher, job)
    arrived(gate, 1)
    (worker,) = workers(tmp_path, arrivals(gate)["rank-0-of-attempt-1"]["SEAWAY_HOST_ADDRESS"])
    children = worker.children()
    supervisor = worker.parent()
    assert supervisor is not None
    supervisor.kill()
    arrived(gate, 1, attempt=2)
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    (gate / "open").touch()
    running.result(DEADLINE_S)
    assert endings(job) == ["supervisor_lost", "succeeded"]


def test_a_gang_is_gone_from_every_node_when_its_cancel_returns(dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path):
    job = meeting(store, gate, "cpux3")
    running = Running(dispatcher, job)
    arrived(gate, 3)
    assert dispatcher.cancel(job) is True
    assert processes_of(tmp_path) == []
    with pytest.raises(JobCancelled):
        running.result(DEADLINE_S)
    assert endings(job) == ["cancelled"]


def test_a_gang_that_waits_for_nodes_to_join_can_be_cancelled(connect: Connect, store: ArtifactStore, gate: Path, tmp_path: Path):
    backend, job = connect(autoscaled=True), meeting(store, gate, "cpux5")
    handle = backend.submit_or_attach(job, claimed(job))
    wait_for(lambda: "waiting for 5 x" in backend.logs(handle, 5), "the gang's driver")
    assert backend.poll(handle).phase == "pending"
    assert backend.cancel(handle) is True
    assert processes_of(tmp_path) == []
    assert end_of(backend, handle).ending is Ending.PREEMPTED  # nobody marked it as cancelled; the dispatcher does
    assert arrivals(gate) == {}


def test_what_the_cluster_can_never_hold_is_refused_with_what_it_lacks(connect: Connect, store: ArtifactStore):
    jobs = {
        "cpux9": r"needs 9 times a node of its own with 1 CPU, 1 GiB memory, and \d of its",  # dead nodes count, too
        "h100x8": "label ray.io/accelerator-type=H100, and 0 of its",
        "gb200x96": "spans 2 NVLink racks",
    }
    for device, words in jobs.items():
        job = meeting(store, None, device, asset=device)
        with pytest.raises(JobRejected, match=words):
            connect().submit_or_attach(job, claimed(job))


def test_hosts_of_one_slice_lie_in_one_domain(connect: Connect, store: ArtifactStore, gate: Path, ray: RayCluster):
    slices = {"v4": NodePool(resource="chip", labels={}, domain_label="rack")}
    backend, job = connect(pools=slices), meeting(store, gate, "v4-16")
    handle = backend.submit_or_attach(job, claimed(job))
    told = arrived(gate, 2)
    (gate / "open").touch()
    assert end_of(backend, handle).ending is Ending.SUCCEEDED
    racks = {number % 2 for number in ray.nodes if address(number) in {rank["SEAWAY_HOST_ADDRESS"] for rank in told.values()}}
    assert len(racks) == 1


def test_a_job_server_that_is_away_decides_nothing(
    ray: RayCluster, connect: Connect, dispatcher: Dispatcher, store: ArtifactStore, gate: Path
):
    job = meeting(store, gate)
    running = Running(dispatcher, job)
    arrived(gate, 1)
    handle = first_handle(job)
    with pytest.raises(EngineUnavailable, match="did not answer: ConnectError"):
        connect(address="http://127.0.0.1:9").poll(handle)
    servers = [*ray.processes("dashboard/dashboard.py"), *ray.processes("DashboardHead"), *ray.processes("JobHead")]
    assert servers
    for server in servers:
        server.suspend()
    try:
        with pytest.raises(EngineUnavailable, match="did not answer: ReadTimeout"):
            connect(request_timeout_s=1.0).poll(handle)
    finally:
        for server in servers:
            server.resume()
    (gate / "open").touch()
    assert running.result(DEADLINE_S).attempts == 1
    assert len(arrivals(gate)) == 1


def test_a_job_that_ray_forgot_is_told_by_its_hosts_and_never_runs_twice(connect: Connect, store: ArtifactStore, gate: Path):
    backend, job = connect(), meeting(store, gate)
    (gate / "open").touch()
    handle = backend.submit_or_attach(job, claimed(job))
    assert end_of(backend, handle).ending is Ending.SUCCEEDED
    assert ask_ray("DELETE", handle).is_success  # as a head forgets that restarts without its memory
    again = connect()
    assert again.submit_or_attach(job, handle.attempt) == handle
    assert ask_ray("GET", handle).status_code == 404
    assert [end_of(client, handle).ending for client in (backend, again)] == [Ending.SUCCEEDED] * 2
    (Path(job.address) / ".attempts/000001/hosts/00000.json").unlink()
    assert end_of(again, handle).ending is Ending.NODE_LOST


def ask_ray(method: str, handle: Handle, verb: str = "") -> httpx.Response:
    """As a person does, past Seaway."""
    url = f"http://127.0.0.1:8265/api/jobs/{submission_id(handle)}{verb}"
    return httpx.request(method, url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30, trust_env=False)


def test_a_job_that_somebody_stops_in_ray_is_preempted_and_tried_again(dispatcher: Dispatcher, store: ArtifactStore, gate: Path):
    job = meeting(store, gate)
    running = Running(dispatcher, job)
    arrived(gate, 1)
    assert ask_ray("POST", first_handle(job), "/stop").is_success
    arrived(gate, 1, attempt=2)
    (gate / "open").touch()
    running.result(DEADLINE_S)
    assert endings(job) == ["preempted", "succeeded"]


def test_an_exception_comes_back_with_its_tail_and_a_lost_log_costs_only_the_log(
    dispatcher: Dispatcher, store: ArtifactStore, ray: RayCluster
):
    job = job_of(store, fail, FaultConfig(fault="raise"), asset="broken", resources=Resources(memory_bytes=GIB))
    with pytest.raises(JobFailed) as failed:
        dispatcher.run(job)
    assert failed.value.ending is Ending.APPLICATION_ERROR
    assert failed.value.tail[-1].startswith("KeyError")
    handle = first_handle(job)
    assert failed.value.log == f"http://127.0.0.1:8265/#/jobs/{submission_id(handle)}"
    assert "Traceback" in dispatcher.backend.logs(handle, 50)
    (log,) = ray.folder.glob(f"node-0/session_2*/logs/job-driver-{submission_id(handle)}.log")
    os.unlink(log)
    assert dispatcher.backend.logs(handle, 50) == ""
    assert end_of(RayBackend(ray.config()), handle).ending is Ending.APPLICATION_ERROR


def test_a_wrong_token_is_one_sentence(connect: Connect, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    job = meeting(store, None)
    with pytest.raises(JobRejected, match=r"another token than \$RAY_AUTH_TOKEN holds .*; set that variable to the cluster's"):
        connect().submit_or_attach(job, claimed(job))


def test_a_driver_that_cannot_start_is_reported_and_not_tried_for_ever(store: ArtifactStore, connect: Connect):
    backend = connect(python="/usr/bin/false")
    with pytest.raises(JobFailed, match="the gang's driver ended with exit code 1 and no host had started"):
        Dispatcher(store, backend, Budgets(backoff_s=0.01, crashes_before_first_step_in_a_row=2)).run(meeting(store, None))
