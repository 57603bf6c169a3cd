"""A real Slurm of four nodes: submission, gangs, losses, and what becomes of a job when Slurm itself is gone."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infra.artifacts.lease import attempts, claim
from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import EngineUnavailable, Handle, JobRejected
from infra.dispatch.budgets import Budgets
from infra.dispatch.dispatcher import Dispatcher, JobCancelled, JobFailed
from infra.dispatch.endings import End, Ending
from infra.dispatch.engines.local import LocalBackend
from infra.dispatch.engines.slurm.backend import SlurmBackend
from infra.dispatch.engines.slurm.config import Lane
from infra.dispatch.job import GIB, Attempt, Job, Resources, job_id
from tests.infra.dispatch.builders import job_of, processes_of, wait_for
from tests.infra.dispatch.programs import FaultConfig, fail
from tests.infra.dispatch.running import Running
from tests.infra.dispatch.slurm_cluster import SlurmCluster
from tests.infra.dispatch.slurm_programs import MeetConfig, meet

pytestmark = pytest.mark.slurm

Connect = Callable[..., SlurmBackend]
ONE_UID = "a" * 16


@pytest.fixture
def connect(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Connect]:
    """A client on a machine: each call is another process's, and `machine` another machine's."""

    def client(machine: str = "here", **changes: object) -> SlurmBackend:
        return SlurmBackend(slurm.config(tmp_path / "jobs", **changes), tmp_path / machine)

    yield client
    wait_for(lambda: not processes_of(tmp_path), "no process of the test is left")
    wait_for(lambda: slurm.idle_nodes() == 4, "all nodes are idle again")


@pytest.fixture
def dispatcher(store: ArtifactStore, connect: Connect) -> Dispatcher:
    return Dispatcher(store, connect(), Budgets(infrastructure=3, backoff_s=0.01))


def meeting(store: ArtifactStore, gate: Path | None, device: str = "cpu", **changes: object) -> Job:
    """A job whose ranks wait at the gate. `cpus=16` of one means that it shares its nodes with nobody."""
    asset = str(changes.pop("asset", "met"))
    resources = Resources.model_validate({"device": device, "memory_bytes": GIB} | changes)
    return job_of(store, meet, MeetConfig(gate=str(gate) if gate else None), asset=asset, resources=resources)


def arrivals(gate: Path) -> dict[str, dict[str, str]]:
    """What each rank said that came to the gate, in any attempt."""
    return {path.name: json.loads(path.read_text()) for path in sorted(gate.glob("rank-*"))}


def arrived(gate: Path, ranks: int) -> dict[str, dict[str, str]]:
    wait_for(lambda: len(arrivals(gate)) >= ranks, f"{ranks} ranks at the gate")
    return arrivals(gate)


def claimed(job: Job) -> Attempt:
    claim(job.address, uid=ONE_UID, after=0)
    return Attempt(1, ONE_UID)


def end_of(backend: SlurmBackend, handle: Handle) -> End:
    return wait_for(lambda: backend.poll(handle).end, "the end of the attempt")


def endings(job: Job) -> list[str | None]:
    return [record.ended for record in attempts(job.address)]


def the_one(slurm: SlurmCluster, job: Job, number: int = 1) -> str:
    """The Slurm job of an attempt."""
    (found,) = slurm.jobs(job_id(job, number))
    return found["id"]


def undisturbed(store: ArtifactStore, folder: Path) -> str:
    """The digest of the same work where nothing went wrong: on this machine, by one process."""
    return Dispatcher(store, LocalBackend(folder / "local")).run(meeting(store, None, asset="twin")).artifact.digest


@pytest.mark.parametrize(
    ("resources", "lane", "words"),
    [
        (Resources(), Lane(partition="nowhere"), "Invalid partition name specified"),
        (Resources(memory_bytes=900_000 * GIB), Lane(), "Memory specification can not be satisfied"),
        (Resources(device="b200x8"), Lane(), "Requested node configuration is not available"),
        (Resources(), Lane(arguments=("--constraint=fast",)), "Invalid feature specification"),
        (Resources(), Lane(arguments=("--bogus",)), "unrecognized option '--bogus'"),
    ],
)
def test_what_slurm_refuses_is_refused_in_its_own_words(
    connect: Connect, store: ArtifactStore, resources: Resources, lane: Lane, words: str
):
    job = job_of(store, meet, MeetConfig(), resources=resources)
    with pytest.raises(JobRejected, match=words):
        connect(bands={"interactive": lane}).submit_or_attach(job, claimed(job))


def test_another_cluster_than_the_profile_names_gets_nothing(connect: Connect, store: ArtifactStore, slurm: SlurmCluster):
    job = meeting(store, None)
    with pytest.raises(JobRejected, match="names cluster 'elsewhere', but 'loopback' answers"):
        connect(cluster="elsewhere").submit_or_attach(job, claimed(job))
    assert slurm.jobs(job_id(job, 1)) == []


def test_a_job_that_the_partition_can_never_hold_is_unschedulable(connect: Connect, store: ArtifactStore, slurm: SlurmCluster):
    job = meeting(store, None, "cpux2")
    backend = connect(bands={"interactive": Lane(partition="short")}, unsatisfiable_s=0.0)  # it has one node
    handle = backend.submit_or_attach(job, claimed(job))
    end = end_of(backend, handle)
    assert (end.ending, "(Partition" in end.what) == (Ending.UNSCHEDULABLE, True)
    assert slurm.jobs(job_id(job, 1)) == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_submitter_killed_around_sbatch_leaves_a_job_that_the_next_one_takes_up(
    connect: Connect, store: ArtifactStore, slurm: SlurmCluster, gate: Path, tmp_path: Path, moment: str
):
    job = meeting(store, gate)
    attempt = claimed(job)
    words = [moment, slurm.config(tmp_path / "jobs").model_dump_json(), str(tmp_path / "there"), job.model_dump_json(), ONE_UID]
    killed = subprocess.run([sys.executable, "-P", "-m", "tests.infra.dispatch.slurm_programs", *words], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(slurm.jobs(job_id(job, 1))) == (1 if moment == "after" else 0)
    handle = connect().submit_or_attach(job, attempt)
    assert len(slurm.jobs(job_id(job, 1))) == 1
    (gate / "open").touch()
    assert end_of(connect(), handle).ending is Ending.SUCCEEDED
    assert len(arrivals(gate)) == 1


def test_submitters_that_race_from_eight_machines_start_one_worker(connect: Connect, store: ArtifactStore, slurm: SlurmCluster, gate: Path):
    job = meeting(store, gate)
    attempt, together = claimed(job), threading.Barrier(8)

    def submit(machine: str) -> None:
        backend = connect(machine)
        together.wait()
        backend.submit_or_attach(job, attempt)

    racers = [threading.Thread(target=submit, args=[f"machine-{number}"]) for number in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    arrived(gate, 1)
    handle = Handle(job_id(job, 1), attempt)
    assert connect().poll(handle).phase == "running"
    wait_for(lambda: len(slurm.jobs(job_id(job, 1))) == 1, "the jobs that lost are gone")
    (gate / "open").touch()
    assert end_of(connect(), handle).ending is Ending.SUCCEEDED
    assert len(arrivals(gate)) == 1


def test_a_gang_has_one_supervisor_a_host_and_its_ranks_in_order(dispatcher: Dispatcher, store: ArtifactStore, gate: Path):
    running = Running(dispatcher, meeting(store, gate, "cpux3", cpus=16))
    told = arrived(gate, 3)
    (gate / "open").touch()
    assert running.result().attempts == 1
    assert [(rank["SEAWAY_RANK"], rank["SEAWAY_RANKS"], rank["SLURM_NODEID"]) for rank in told.values()] == [
        ("0", "3", "0"),
        ("1", "3", "1"),
        ("2", "3", "2"),
    ]
    assert len({rank["SLURMD_NODENAME"] for rank in told.values()}) == 3
    assert {rank["SEAWAY_HOST_ADDRESS"] for rank in told.values()} == {"127.0.0.1"}


def test_a_second_gang_waits_until_all_of_it_can_start(connect: Connect, store: ArtifactStore, tmp_path: Path):
    backend = connect()
    gates = [tmp_path / "first", tmp_path / "second"]
    jobs = [meeting(store, gate, device, cpus=16, asset=gate.name) for gate, device in zip(gates, ("cpux3", "cpux2"), strict=True)]
    for gate in gates:
        gate.mkdir()
    first = backend.submit_or_attach(jobs[0], claimed(jobs[0]))
    arrived(gates[0], 3)
    second = backend.submit_or_attach(jobs[1], claimed(jobs[1]))
    assert backend.poll(second).phase == "pending"
    (gates[0] / "open").touch()
    assert end_of(backend, first).ending is Ending.SUCCEEDED
    arrived(gates[1], 2)
    (gates[1] / "open").touch()
    assert end_of(backend, second).ending is Ending.SUCCEEDED


def test_gpus_are_those_that_slurm_gave_one_a_rank(slurm: SlurmCluster, dispatcher: Dispatcher, store: ArtifactStore, gate: Path):
    if not slurm.gpus:
        assert os.environ.get("CI") != "true", "CI must be able to make device nodes"
        pytest.skip("this user may not make device nodes")
    running = [Running(dispatcher, meeting(store, gate, "h100x4", asset=asset)) for asset in ("one", "other")]
    told = arrived(gate, 8)
    (gate / "open").touch()
    for each in running:
        each.result()
    seen = [(rank["SLURMD_NODENAME"], rank["CUDA_VISIBLE_DEVICES"]) for rank in told.values()]
    assert len(set(seen)) == 8
    by_job = {rank["SLURM_JOB_ID"]: rank["SLURM_JOB_GPUS"] for rank in told.values()}
    for rank in told.values():
        assert rank["CUDA_VISIBLE_DEVICES"] in by_job[rank["SLURM_JOB_ID"]].split(",")


def test_a_lost_node_costs_infrastructure_and_the_next_attempt_gives_the_same_bytes(
    slurm: SlurmCluster, dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path
):
    job = meeting(store, gate, "cpux2", cpus=16)
    running = Running(dispatcher, job)
    lost = arrived(gate, 2)[f"rank-1-of-slurm-job-{the_one(slurm, job)}"]
    slurm.lose_node(lost["SLURMD_NODENAME"])
    try:
        survivors = arrived(gate, 4)
        (gate / "open").touch()
        outcome = running.result()
    finally:
        slurm.return_node(lost["SLURMD_NODENAME"])
    assert endings(job) == ["node_lost", "succeeded"]
    assert len({rank["SLURM_JOB_ID"] for rank in survivors.values()}) == 2
    assert outcome.artifact.digest == undisturbed(store, tmp_path)


@pytest.mark.parametrize("partition", ["batch", "scrap"], ids=["requeue", "cancel"])
def test_a_preempted_job_comes_back_and_gives_the_same_bytes(
    slurm: SlurmCluster, connect: Connect, store: ArtifactStore, gate: Path, tmp_path: Path, partition: str
):
    backend = connect(bands={"batch": Lane(partition=partition), "production": Lane(partition="urgent")})
    dispatcher = Dispatcher(store, backend, Budgets(application=0, backoff_s=0.01))
    job = meeting(store, gate, "cpux2", cpus=16, band="batch")
    running = Running(dispatcher, job)
    arrived(gate, 2)
    (tmp_path / "urgent").mkdir()
    urgent = Running(dispatcher, meeting(store, tmp_path / "urgent", "cpux2", cpus=16, band="production", asset="urgent"))
    arrived(tmp_path / "urgent", 2)
    wait_for(lambda: endings(job)[0] is not None, "the first attempt ends")
    (tmp_path / "urgent" / "open").touch()
    assert urgent.result().attempts == 1
    arrived(gate, 4)
    (gate / "open").touch()
    outcome = running.result()
    assert endings(job) == ["preempted", "succeeded"]
    assert outcome.artifact.digest == undisturbed(store, tmp_path)


def test_a_job_cancelled_in_the_queue_never_starts(slurm: SlurmCluster, connect: Connect, store: ArtifactStore, gate: Path):
    backend, job = connect(bands={"interactive": Lane(partition="main", arguments=("--hold",))}), meeting(store, gate)
    handle = backend.submit_or_attach(job, claimed(job))
    assert backend.poll(handle).phase == "pending"
    assert backend.cancel(handle) is True
    assert slurm.jobs(job_id(job, 1)) == []
    assert end_of(backend, handle).ending is Ending.CANCELLED
    connect().submit_or_attach(job, handle.attempt)  # somebody who did not hear of it
    assert slurm.jobs(job_id(job, 1)) == []
    assert arrivals(gate) == {}


def test_a_gang_is_gone_from_every_node_when_its_cancel_returns(
    slurm: SlurmCluster, dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path
):
    job = meeting(store, gate, "cpux3", cpus=16)
    running = Running(dispatcher, job)
    arrived(gate, 3)
    assert dispatcher.cancel(job) is True
    assert processes_of(tmp_path) == []
    assert slurm.jobs(job_id(job, 1)) == []
    with pytest.raises(JobCancelled):
        running.result()
    assert endings(job) == ["cancelled"]


def test_a_job_that_somebody_cancels_at_slurm_is_cancelled(slurm: SlurmCluster, dispatcher: Dispatcher, store: ArtifactStore, gate: Path):
    job = meeting(store, gate)
    running = Running(dispatcher, job)
    arrived(gate, 1)
    slurm.command("scancel", the_one(slurm, job))
    with pytest.raises(JobCancelled):
        running.result()


def test_a_job_requeued_by_an_administrator_is_lost_and_its_second_start_does_nothing(
    slurm: SlurmCluster, dispatcher: Dispatcher, store: ArtifactStore, gate: Path
):
    job = meeting(store, gate)
    running = Running(dispatcher, job)
    arrived(gate, 1)
    number = the_one(slurm, job)
    slurm.command("scontrol", "update", f"jobid={number}", "requeue=1")
    slurm.command("scontrol", "requeue", number)
    arrived(gate, 2)
    (gate / "open").touch()
    running.result()
    assert endings(job) == ["preempted", "succeeded"]
    assert len(arrivals(gate)) == 2


def test_an_exception_comes_back_with_its_tail_and_its_log(dispatcher: Dispatcher, store: ArtifactStore):
    job = job_of(store, fail, FaultConfig(fault="raise"), asset="broken", resources=Resources(memory_bytes=GIB))
    with pytest.raises(JobFailed) as failed:
        dispatcher.run(job)
    assert failed.value.ending is Ending.APPLICATION_ERROR
    assert failed.value.tail[-1].startswith("KeyError")
    assert "Traceback" in Path(failed.value.log).read_text()


def test_a_supervisor_that_was_killed_costs_infrastructure(slurm: SlurmCluster, dispatcher: Dispatcher, store: ArtifactStore, gate: Path):
    job = meeting(store, gate)
    running = Running(dispatcher, job)
    (told,) = arrived(gate, 1).values()
    supervisor = psutil.Process(int(told["pid"])).parent()
    assert supervisor is not None
    supervisor.send_signal(signal.SIGKILL)
    arrived(gate, 2)
    (gate / "open").touch()
    running.result()
    assert endings(job) == ["supervisor_lost", "succeeded"]


def test_a_job_outlives_its_controller_and_is_adopted(
    slurm: SlurmCluster, connect: Connect, dispatcher: Dispatcher, store: ArtifactStore, gate: Path
):
    job = meeting(store, gate)
    running = Running(dispatcher, job)
    arrived(gate, 1)
    number = the_one(slurm, job)
    slurm.save_state()
    slurm.kill_controller()
    try:
        backend = connect("another machine", command_timeout_s=1.0)
        with pytest.raises(EngineUnavailable, match="squeue"):
            backend.poll(Handle(job_id(job, 1), Attempt(1, attempts(job.address)[0].uid)))
    finally:
        slurm.start_controller()
    assert the_one(slurm, job) == number
    (gate / "open").touch()
    assert running.result().attempts == 1
    assert len(arrivals(gate)) == 1


def test_a_job_that_slurm_forgot_is_told_by_its_hosts(slurm: SlurmCluster, connect: Connect, store: ArtifactStore):
    done, lost = meeting(store, None), meeting(store, None, asset="lost")
    backend = connect()
    handles = [backend.submit_or_attach(job, claimed(job)) for job in (done, lost)]
    wait_for(lambda: not slurm.jobs(job_id(done, 1)) and not slurm.jobs(job_id(lost, 1)), "both are over")
    (Path(lost.address) / ".attempts/000001/hosts/00000.json").unlink()
    slurm.forget_jobs()
    assert [backend.poll(handle).end.ending for handle in handles] == [Ending.SUCCEEDED, Ending.NODE_LOST]  # type: ignore[union-attr]
    assert connect("another machine").submit_or_attach(done, handles[0].attempt) == handles[0]
    assert slurm.jobs(job_id(done, 1)) == []


def test_a_log_that_somebody_removed_costs_nothing_but_the_log(
    slurm: SlurmCluster, dispatcher: Dispatcher, store: ArtifactStore, gate: Path
):
    job = meeting(store, gate)
    running = Running(dispatcher, job)
    arrived(gate, 1)
    handle = Handle(job_id(job, 1), Attempt(1, attempts(job.address)[0].uid))
    os.unlink(dispatcher.backend.log_location(handle))
    assert dispatcher.backend.logs(handle, 5) == ""
    (gate / "open").touch()
    assert running.result().attempts == 1


def test_a_store_made_anew_ends_what_the_old_one_left_in_the_queue(
    slurm: SlurmCluster, connect: Connect, store: ArtifactStore, gate: Path, tmp_path: Path
):
    backend, job = connect(), meeting(store, gate)
    backend.submit_or_attach(job, claimed(job))
    arrived(gate, 1)
    Path(store.root).rename(tmp_path / "removed")
    claim(job.address, uid="b" * 16, after=0)
    handle = backend.submit_or_attach(job, Attempt(1, "b" * 16))
    arrived(gate, 2)
    (gate / "open").touch()
    assert end_of(backend, handle).ending is Ending.SUCCEEDED
