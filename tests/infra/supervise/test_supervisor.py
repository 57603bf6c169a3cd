"""`python -m infra.supervise` as an engine runs it: exit codes, signals, clocks."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.artifacts.lease import Lease, attempts, claim, read_beat
from infra.artifacts.store import ArtifactStore
from infra.dispatch.environment import SOURCES, environment
from infra.dispatch.job import Attempt, Job, Resources, Timeouts, mark_cancelled, write_spec
from tests.infra.dispatch.builders import QUICK, job_of, processes_of, wait_for
from tests.infra.dispatch.programs import CountConfig, FaultConfig, count, fail

UID = "c" * 16


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "store"))


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    folder = tmp_path / "gate"
    folder.mkdir()
    return folder


def started(job: Job, tmp_path: Path) -> subprocess.Popen[str]:
    claim(job.address, uid=UID, after=0)
    command = [sys.executable, "-P", "-m", "infra.supervise", write_spec(job, Attempt(1, UID))]
    with (tmp_path / "log.txt").open("w") as log:
        return subprocess.Popen(
            command, env=environment(Resources(), os.environ), stdout=log, stderr=log, text=True, start_new_session=True
        )


def ended(job: Job, tmp_path: Path) -> int:
    """Run to the end; give the exit code. Nothing may be left."""
    process = started(job, tmp_path)
    code = process.wait(60)
    assert processes_of(tmp_path) == []
    return code


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("raise", 1),
        ("exit_zero", 70),
        ("memory", 71),
        ("disk_full", 74),
        ("poison", 125),
        ("crash", 134),
        ("leave_a_child", 0),
        ("leave_a_daemon", 0),
    ],
)
def test_the_exit_code_tells_the_ending(store: ArtifactStore, tmp_path: Path, fault: str, code: int):
    job = job_of(store, fail, FaultConfig(fault=fault))
    assert ended(job, tmp_path) == code
    assert attempts(job.address)[0].ended is not None


def test_a_stall_is_124_and_shows_where(store: ArtifactStore, tmp_path: Path):
    timeouts = QUICK.model_copy(update={"step_s": 0.3, "kill_grace_s": 0.5})
    assert ended(job_of(store, fail, FaultConfig(fault="stall"), timeouts=timeouts), tmp_path) == 124
    assert "wait_for_a_step_that_never_comes" in (tmp_path / "log.txt").read_text()


def test_a_stopped_process_is_a_stall_too(store: ArtifactStore, tmp_path: Path, gate: Path):
    timeouts = QUICK.model_copy(update={"step_s": 1.0, "kill_grace_s": 0.2})
    job = job_of(store, count, CountConfig(gate=str(gate)), timeouts=timeouts)
    process = started(job, tmp_path)
    os.kill(worker_at(gate), signal.SIGSTOP)
    assert process.wait(60) == 124


def test_a_process_that_outlives_its_wall_clock_is_ended(store: ArtifactStore, tmp_path: Path, gate: Path):
    timeouts = QUICK.model_copy(update={"wall_s": 0.8, "kill_grace_s": 0.2})
    job = job_of(store, count, CountConfig(gate=str(gate)), timeouts=timeouts)
    assert ended(job, tmp_path) == 123
    assert "timeouts.wall_s" in json.dumps(attempts(job.address)[0].detail)


def test_sigterm_is_a_preemption_unless_somebody_cancelled(store: ArtifactStore, tmp_path: Path, gate: Path):
    job = job_of(store, count, CountConfig(gate=str(gate)))
    process = started(job, tmp_path)
    worker_at(gate)
    process.terminate()
    assert process.wait(60) == 143
    assert attempts(job.address)[0].ended == "preempted"


def test_sigterm_after_a_cancel_mark_is_a_cancel(store: ArtifactStore, tmp_path: Path, gate: Path):
    job = job_of(store, count, CountConfig(gate=str(gate)))
    process = started(job, tmp_path)
    worker_at(gate)
    mark_cancelled(job.address, 1)
    process.terminate()
    assert process.wait(60) == 130


def test_an_attempt_cancelled_before_it_started_ends_at_once(store: ArtifactStore, tmp_path: Path, gate: Path):
    job = job_of(store, count, CountConfig(gate=str(gate)))
    mark_cancelled(job.address, 1)
    assert ended(job, tmp_path) == 130
    assert store.open_at(job.address) is None


def test_the_lease_beats_while_the_worker_lives_and_its_loss_ends_it(store: ArtifactStore, tmp_path: Path, gate: Path):
    job = job_of(store, count, CountConfig(gate=str(gate)))
    process = started(job, tmp_path)
    worker_at(gate)
    first = wait_for(lambda: read_beat(job.address, 1), "a first beat")
    wait_for(lambda: read_beat(job.address, 1) != first, "another beat, though no step is made")
    claim(job.address, uid="d" * 16, after=1)
    assert process.wait(60) == 75
    assert not Lease(job.address, 1, UID).is_current()


def worker_at(gate: Path) -> int:
    found = wait_for(lambda: [path.name for path in gate.glob("worker-*")], "the worker at the gate")
    return int(found[0].removeprefix("worker-"))


def test_a_missing_spec_starts_nothing_that_stays(tmp_path: Path):
    command = [sys.executable, "-P", "-m", "infra.supervise", str(tmp_path / "nowhere" / "job.json")]
    done = subprocess.run(command, env=environment(Resources(), os.environ), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "no job spec at" in done.stderr
    assert processes_of(tmp_path) == []


def test_a_supervisor_imports_nothing_heavy():
    heavy = "{'pyarrow', 'jax', 'sqlalchemy', 'dagster', 'dagster_pipes', 'numpy', 'polars', 'duckdb', 'psutil', 's3fs', 'botocore'}"
    code = f"import sys, infra.supervise.supervisor, infra.dispatch.execution; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=SOURCES, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_default_timeouts_suit_a_cold_start_on_a_cluster():
    assert Timeouts().start_grace_s >= 40 * 60  # cold first steps of 25-30 min were seen at two racks
    assert Timeouts().step_s >= 10 * 60  # behind collectives' own time-outs
