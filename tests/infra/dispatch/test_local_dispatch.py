"""Real processes: a dispatcher, the local backend, supervisors and workers."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from infra.artifacts.lease import ATTEMPTS_FOLDER, attempts, claim
from infra.artifacts.manifest import MANIFEST_NAME
from infra.artifacts.store import ArtifactStore
from infra.dispatch.budgets import Budgets
from infra.dispatch.dispatcher import Dispatcher, JobCancelled, JobDetached, JobFailed
from infra.dispatch.endings import Ending
from infra.dispatch.engines import local
from infra.dispatch.engines.local import LocalBackend
from infra.dispatch.job import Job, Resources, Timeouts, attempt_directory
from infra.dispatch.messages import Message, MessageReader, messages_url
from infra.storage.errors import StorageError
from infra.storage.objects import list_names
from infra.supervise.state import read_started
from tests.infra.dispatch.builders import QUICK, job_of, processes_of, wait_for
from tests.infra.dispatch.programs import CountConfig, FaultConfig, JoinConfig, count, fail, join
from tests.infra.dispatch.running import Running, arrived


def starts(job: Job, tmp_path: Path) -> int:
    return len(list((tmp_path / "state").glob("*/supervisor.json")))


def test_a_job_publishes_and_a_second_run_reuses_it(dispatcher: Dispatcher, store: ArtifactStore):
    messages: list[Message] = []
    job = job_of(store, count, CountConfig(numbers=3))
    built = dispatcher.run(job, on_message=messages.append)
    again = dispatcher.run(job)
    assert (built.how, built.attempts, again.how, again.attempts) == ("built", 1, "reused", 0)
    assert again.artifact == built.artifact
    with built.artifact.open("numbers.txt") as stream:
        assert stream.read() == b"0\n1\n2"
    assert any(message.text.startswith("3 of 3 numbers") for message in messages)
    assert built.observations["max_rss_bytes"] > 1e6
    assert built.observations["cpu_s"] > 0


def test_inputs_reach_the_program_by_name_and_partitions_sorted(dispatcher: Dispatcher, store: ArtifactStore):
    one, two, three = (dispatcher.run(job_of(store, count, CountConfig(numbers=n), partition=f"p{n}")).artifact for n in (1, 2, 3))
    job = job_of(store, join, JoinConfig(), asset="joined", inputs={"one": one, "many": {"b": two, "a": three}})
    with dispatcher.run(job).artifact.open("joined.txt") as stream:
        assert stream.read() == b"0,0\n1\n2,0\n1"


@pytest.mark.parametrize(
    ("fault", "ending", "what"),
    [
        ("raise", Ending.APPLICATION_ERROR, 'KeyError: "the program\'s own mistake"'),
        ("exit_zero", Ending.UNPUBLISHED, "published nothing"),
        ("memory", Ending.OUT_OF_MEMORY, "more memory"),
        ("disk_full", Ending.STORAGE_REFUSED, "the disk is full; free space"),
        ("hide_bytes", Ending.APPLICATION_ERROR, "data.txt has other content"),
    ],
)
def test_a_failure_is_one_sentence_with_log_and_advice(dispatcher: Dispatcher, store: ArtifactStore, fault: str, ending: Ending, what: str):
    job = job_of(store, fail, FaultConfig(fault=fault), asset="broken")
    with pytest.raises(JobFailed) as failed:
        dispatcher.run(job)
    assert failed.value.ending is ending
    assert what in failed.value.what
    assert str(failed.value).startswith("broken failed")
    assert Path(failed.value.log).is_file()
    assert failed.value.todo
    assert store.open_at(job.address) is None


def test_a_traceback_lies_in_the_log_and_its_end_in_the_record(dispatcher: Dispatcher, store: ArtifactStore):
    job = job_of(store, fail, FaultConfig(fault="raise"))
    with pytest.raises(JobFailed) as failed:
        dispatcher.run(job)
    assert failed.value.tail[-1].startswith("KeyError")
    assert "Traceback" in Path(failed.value.log).read_text()
    assert attempts(job.address)[0].ended == "application_error"


@pytest.mark.parametrize("fault", ["crash", "poison"])
def test_a_crash_costs_infrastructure_and_the_next_attempt_succeeds(
    dispatcher: Dispatcher, store: ArtifactStore, tmp_path: Path, fault: str
):
    marks = tmp_path / "marks"
    marks.mkdir()
    outcome = dispatcher.run(job_of(store, fail, FaultConfig(fault=fault, marks=str(marks))))
    assert (outcome.how, outcome.attempts) == ("built", 2)


def test_invalid_config_fails_once_and_names_the_field(dispatcher: Dispatcher, store: ArtifactStore):
    job = job_of(store, count, CountConfig(), config={"numbers": "many", "colour": "red"})
    with pytest.raises(JobFailed, match=r"numbers: Input should be.*; colour: Extra inputs") as failed:
        dispatcher.run(job)
    assert failed.value.ending is Ending.INVALID_CONFIG


def test_a_config_that_is_not_the_recipes_is_refused(dispatcher: Dispatcher, store: ArtifactStore):
    job = job_of(store, count, CountConfig(numbers=4), config={"numbers": 5})
    with pytest.raises(JobFailed, match="made from other config"):
        dispatcher.run(job)


def test_an_unpublished_input_is_named(dispatcher: Dispatcher, store: ArtifactStore, tmp_path: Path):
    one = dispatcher.run(job_of(store, count, CountConfig(numbers=1))).artifact
    job = job_of(store, join, JoinConfig(), inputs={"one": one, "many": {}})
    (Path(one.url) / ".artifact.json").unlink()
    with pytest.raises(JobFailed, match="input one: nothing is published at"):
        dispatcher.run(job)


def test_another_version_of_the_code_is_refused(dispatcher: Dispatcher, store: ArtifactStore):
    with pytest.raises(JobFailed, match=r"planned for .* version 2, the worker has 1"):
        dispatcher.run(job_of(store, count, CountConfig(), version="2"))


def test_a_killed_worker_is_replaced_and_resumes_from_scratch_space(dispatcher: Dispatcher, store: ArtifactStore, gate: Path):
    job = job_of(store, count, CountConfig(gate=str(gate)))
    running = Running(dispatcher, job)
    first = arrived(gate)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: len(list(gate.glob("worker-*"))) == 2, "the second attempt at the gate")
    (gate / "open").touch()
    outcome = running.result()
    told = [
        message.progress["done"] for message in MessageReader(messages_url(attempt_directory(job.address, 2))).drain() if message.progress
    ]
    assert told[0] == 6, "five numbers were saved by the first attempt"
    assert outcome.attempts == 2
    assert outcome.artifact.digest == undisturbed(dispatcher, store)
    assert list_names(job.address) == (MANIFEST_NAME, ATTEMPTS_FOLDER, outcome.artifact.manifest.directory), "nothing else is kept"


def undisturbed(dispatcher: Dispatcher, store: ArtifactStore) -> str:
    return dispatcher.run(job_of(store, count, CountConfig(), asset="undisturbed")).artifact.digest


def test_a_killed_supervisor_is_noticed_its_worker_dies_and_the_job_goes_on(
    dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path
):
    job = job_of(store, count, CountConfig(gate=str(gate)))
    running = Running(dispatcher, job)
    arrived(gate)
    supervisor = read_started(next((tmp_path / "state").glob("*-a1")))
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_for(lambda: len(list(gate.glob("worker-*"))) == 2, "the second attempt at the gate")
    assert supervisor.workers[0].members() == []
    (gate / "open").touch()
    outcome = running.result()
    assert outcome.artifact.digest == undisturbed(dispatcher, store)
    assert [record.ended for record in attempts(job.address)] == ["supervisor_lost", "succeeded"]


def test_a_dispatcher_killed_mid_run_is_replaced_by_one_that_attaches(
    dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path
):
    job = job_of(store, count, CountConfig(gate=str(gate)))
    command = [sys.executable, "-m", "tests.infra.dispatch.run_job", store.root, str(tmp_path / "state"), job.model_dump_json()]
    with subprocess.Popen(command, cwd=Path(__file__).parents[3]) as killed:
        worker = arrived(gate)
        killed.kill()
    running = Running(dispatcher, job)
    (gate / "open").touch()
    outcome = running.result()
    assert (outcome.how, outcome.attempts) == ("attached", 1)
    assert [path.name for path in gate.glob("worker-*")] == [f"worker-{worker}"]
    assert outcome.artifact.digest == undisturbed(dispatcher, store)


def test_racing_dispatchers_start_one_process(store: ArtifactStore, dispatcher: Dispatcher, gate: Path, tmp_path: Path):
    job = job_of(store, count, CountConfig(gate=str(gate)))
    others = [Dispatcher(store, LocalBackend(tmp_path / "state")) for _ in range(5)]
    running = [Running(one, job) for one in (dispatcher, *others)]
    arrived(gate)
    (gate / "open").touch()
    outcomes = [each.result() for each in running]
    assert len({outcome.artifact.digest for outcome in outcomes}) == 1
    assert [outcome.how for outcome in outcomes].count("built") == 1
    assert starts(job, tmp_path) == 1
    assert len(attempts(job.address)) == 1


def test_a_stall_is_124_with_the_stack_in_the_log(dispatcher: Dispatcher, store: ArtifactStore, tmp_path: Path):
    timeouts = Timeouts(start_grace_s=60, step_s=0.3, kill_grace_s=1, lease_beat_s=0.1)
    job = job_of(store, fail, FaultConfig(fault="stall"), timeouts=timeouts)
    with pytest.raises(JobFailed) as failed:
        Dispatcher(store, LocalBackend(tmp_path / "state"), Budgets(infrastructure=0)).run(job)
    assert failed.value.ending is Ending.STALLED
    log = Path(failed.value.log).read_text()
    assert "wait_for_a_step_that_never_comes" in log
    end = json.loads((Path(failed.value.log).parent / "ended.json").read_text())
    assert end["steps"] == 1
    assert end["observations"]["wall_s"] < 30


def test_a_start_that_never_makes_a_step_is_a_stall(store: ArtifactStore, tmp_path: Path, gate: Path, dispatcher: Dispatcher):
    timeouts = Timeouts(start_grace_s=0.5, step_s=60, kill_grace_s=1, lease_beat_s=0.1)
    job = job_of(store, count, CountConfig(gate=str(gate), gate_at=0), timeouts=timeouts)
    with pytest.raises(JobFailed, match=r"no step was completed in the first 0\.5 s"):
        Dispatcher(store, LocalBackend(tmp_path / "state"), Budgets(infrastructure=0)).run(job)


def test_a_cancel_is_confirmed_and_leaves_nothing_running(dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path):
    job = job_of(store, count, CountConfig(gate=str(gate)))
    running = Running(dispatcher, job)
    arrived(gate)
    assert Dispatcher(store, LocalBackend(tmp_path / "state")).cancel(job) is True
    assert processes_of(tmp_path) == []
    with pytest.raises(JobCancelled):
        running.result()
    assert attempts(job.address)[-1].ended == "cancelled"


def test_an_interruption_may_cancel_or_detach(dispatcher: Dispatcher, store: ArtifactStore, gate: Path):
    job = job_of(store, count, CountConfig(gate=str(gate)))
    with pytest.raises(JobDetached, match="run it again to attach"):
        dispatcher.run(job, interruption=lambda: "detach" if list(gate.glob("worker-*")) else None)
    worker = arrived(gate)
    with pytest.raises(JobCancelled):
        dispatcher.run(job, interruption=lambda: "cancel")
    assert [path.name for path in gate.glob("worker-*")] == [f"worker-{worker}"]
    (gate / "open").touch()
    assert dispatcher.run(job).artifact.digest == undisturbed(dispatcher, store)


def test_an_attempt_that_lost_its_lease_is_stopped(dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path):
    job = job_of(store, count, CountConfig(gate=str(gate)))
    running = Running(dispatcher, job)
    arrived(gate)
    usurper = claim(job.address, uid="f" * 16, after=1, extra={"backend": dispatcher.backend.identity})
    wait_for(lambda: attempts(job.address)[0].ended == "lease_lost", "the fenced attempt ends")
    (gate / "open").touch()
    outcome = running.result()
    assert outcome.artifact.manifest.directory == f"attempt-{usurper.uid}"


def test_processes_that_a_program_leaves_are_ended(dispatcher: Dispatcher, store: ArtifactStore):
    child = dispatcher.run(job_of(store, fail, FaultConfig(fault="leave_a_child"))).artifact.read_json("child.json")
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_the_children_of_a_worker_die_though_their_supervisor_was_killed(
    dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path
):
    job = job_of(store, count, CountConfig(gate=str(gate), children=2))
    running = Running(dispatcher, job)
    arrived(gate)
    supervisor = read_started(next((tmp_path / "state").glob("*-a1")))
    assert supervisor is not None
    assert len(supervisor.workers[0].members()) >= 3  # git may be asked for the provenance beside them
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_for(lambda: len(list(gate.glob("worker-*"))) == 2, "the second attempt at the gate")
    assert supervisor.workers[0].members() == []
    (gate / "open").touch()
    running.result()


def test_a_published_artifact_counts_though_its_process_was_killed_afterwards(dispatcher: Dispatcher, store: ArtifactStore, gate: Path):
    job = job_of(store, count, CountConfig(gate=str(gate)))
    running = Running(dispatcher, job)
    worker = arrived(gate)
    other = dispatcher.run(job_of(store, count, CountConfig(), asset="twin")).artifact
    manifest = Path(job.address) / ".artifact.json"
    directory = Path(job.address) / other.manifest.directory
    directory.mkdir()
    (directory / "numbers.txt").write_bytes((Path(other.url) / other.manifest.directory / "numbers.txt").read_bytes())
    manifest.write_bytes((Path(other.url) / ".artifact.json").read_bytes())
    os.kill(worker, signal.SIGKILL)
    assert running.result().artifact.digest == other.digest
    assert attempts(job.address)[0].ended == "succeeded"


def test_a_run_after_a_reported_failure_tries_again(dispatcher: Dispatcher, store: ArtifactStore, tmp_path: Path):
    marks = tmp_path / "marks"
    marks.mkdir()
    job = job_of(store, fail, FaultConfig(fault="raise", marks=str(marks)))
    with pytest.raises(JobFailed):
        dispatcher.run(job)
    assert (dispatcher.run(job).how, len(attempts(job.address))) == ("built", 2)


def test_a_state_folder_that_cannot_be_made_is_one_clear_sentence(store: ArtifactStore, tmp_path: Path):
    (tmp_path / "state").touch()
    with pytest.raises(StorageError, match=r"can't keep the job's state in .*a parent of this path is a file"):
        Dispatcher(store, LocalBackend(tmp_path / "state")).run(job_of(store, count, CountConfig()))


def test_a_job_that_this_machine_cannot_run_is_refused_with_advice(dispatcher: Dispatcher, store: ArtifactStore):
    job = job_of(store, count, CountConfig(), resources=Resources(device="v4-2048"))
    with pytest.raises(JobFailed, match="needs 256 processes on 256 hosts; choose device cpu"):
        dispatcher.run(job)


def test_chips_that_this_machine_does_not_have_are_refused_with_advice(
    dispatcher: Dispatcher, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local, "_chips", lambda kind: [Path("/dev/nvidia0"), Path("/dev/nvidia1")])
    with pytest.raises(JobFailed, match="h100x8 needs 8 GPUs, this machine has 2; choose device cpu for it, a smaller one"):
        dispatcher.run(job_of(store, count, CountConfig(), resources=Resources(device="h100x8")))
    assert dispatcher.run(job_of(store, count, CountConfig(), resources=Resources(device="h100x1"))).how == "built"


def test_the_store_may_be_removed_and_made_anew_over_the_same_state(dispatcher: Dispatcher, store: ArtifactStore, tmp_path: Path):
    job = job_of(store, count, CountConfig())
    first = dispatcher.run(job).artifact.digest
    Path(store.root).rename(tmp_path / "removed")
    again = dispatcher.run(job)
    assert (again.how, again.artifact.digest) == ("built", first)


def test_lost_state_does_not_lose_the_job(dispatcher: Dispatcher, store: ArtifactStore, gate: Path, tmp_path: Path):
    job = job_of(store, count, CountConfig(gate=str(gate)), timeouts=QUICK)
    claim(job.address, uid="a" * 16, after=0, extra={"backend": dispatcher.backend.identity})
    (gate / "open").touch()
    assert dispatcher.run(job).how == "attached"
