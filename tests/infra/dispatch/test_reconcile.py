"""Orphans: what the sweep decides, and that it does it on the real engine of this machine."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.artifacts.lease import AttemptRecord, Lease, StalenessObserver, attempts, claim
from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import EngineState, Handle
from infra.dispatch.dispatcher import Dispatcher, JobDetached
from infra.dispatch.endings import End, Ending
from infra.dispatch.engines.local import LocalBackend
from infra.dispatch.job import Attempt, Job, is_cancelled, job_id, mark_cancelled
from infra.dispatch.reconcile import Cancel, RecordEnd, Sighting, carry_out, reconcile, survey
from infra.supervise.state import read_started
from tests.infra.dispatch.builders import job_of, processes_of, wait_for
from tests.infra.dispatch.programs import CountConfig, count

STALE_S = 90.0
RUNNING = EngineState("running")


def over(ending: Ending) -> EngineState:
    return EngineState("ended", End(ending=ending, what="the engine's word"))


def seen(engine: EngineState | None, *, ended: Ending | None = None, **changes: Any) -> Sighting:
    record = AttemptRecord(token=3, uid="a" * 16, extra={"backend": "local:here", "job_id": "counted-a3"}, ended=ended and ended.value)
    sighting = Sighting("address", record, is_newest=True, is_cancelled=False, is_wanted=True, silent_s=0.0, engine=engine)
    return replace(sighting, **changes)


def decided(sighting: Sighting) -> Cancel | RecordEnd | None:
    actions = reconcile([sighting], stale_s=STALE_S)
    assert len(actions) <= 1
    return actions[0] if actions else None


def recorded(sighting: Sighting) -> Ending | None:
    action = decided(sighting)
    assert action is None or isinstance(action, RecordEnd)
    return action and action.end.ending


def why_cancelled(sighting: Sighting) -> str:
    action = decided(sighting)
    assert isinstance(action, Cancel)
    assert action.handle == Handle("counted-a3", Attempt(3, "a" * 16))
    return action.why


def test_an_attempt_that_goes_on_and_is_wanted_is_left_alone():
    assert decided(seen(RUNNING, silent_s=1e6)) is None


def test_an_engine_that_does_not_answer_leads_to_nothing():
    assert decided(seen(None, is_wanted=False, is_newest=False, is_cancelled=True)) is None


def test_an_end_that_only_the_engine_knows_is_recorded():
    assert recorded(seen(over(Ending.PREEMPTED))) is Ending.PREEMPTED


def test_an_end_that_is_recorded_is_not_recorded_again():
    assert decided(seen(over(Ending.PREEMPTED), ended=Ending.NODE_LOST)) is None


def test_an_end_that_somebody_asked_for_is_a_cancel_unless_it_came_too_late():
    assert recorded(seen(over(Ending.PREEMPTED), is_cancelled=True)) is Ending.CANCELLED
    assert recorded(seen(over(Ending.SUCCEEDED), is_cancelled=True)) is Ending.SUCCEEDED


def test_an_attempt_that_was_just_claimed_is_given_time_to_be_submitted():
    assert recorded(seen(over(Ending.NEVER_STARTED), silent_s=STALE_S - 1)) is None
    assert recorded(seen(over(Ending.NEVER_STARTED), silent_s=STALE_S)) is Ending.NEVER_STARTED


def test_a_zombie_is_ended():
    assert "later attempt" in why_cancelled(seen(RUNNING, ended=Ending.NODE_LOST, is_newest=False))
    assert "taken for lost" in why_cancelled(seen(RUNNING, ended=Ending.NODE_LOST))


def test_a_cancel_that_somebody_began_is_seen_through():
    assert "did not see it through" in why_cancelled(seen(RUNNING, is_cancelled=True))


def test_what_nobody_wants_any_more_is_ended():
    assert "its run was cancelled" in why_cancelled(seen(RUNNING, is_wanted=False))


@pytest.fixture
def waiting(store: ArtifactStore, gate: Path) -> Job:
    return job_of(store, count, CountConfig(gate=str(gate)))


def orphan(job: Job, backend: LocalBackend) -> Handle:
    """An attempt whose dispatcher died after it had submitted it."""
    claim(job.address, uid="b" * 16, after=0, extra={"backend": backend.identity, "job_id": job_id(job, 1)})
    return backend.submit_or_attach(job, Attempt(1, "b" * 16))


def sweep(job: Job, backend: LocalBackend, **wanted: Any) -> list[bool]:
    sightings = survey([job.address], backend, StalenessObserver(), **wanted)
    return [carry_out(action, backend) for action in reconcile(sightings, stale_s=STALE_S)]


def test_an_orphan_of_a_cancelled_run_leaves_no_process_and_one_record(waiting: Job, dispatcher: Dispatcher, gate: Path, tmp_path: Path):
    backend = dispatcher.backend
    assert isinstance(backend, LocalBackend)
    handle = orphan(waiting, backend)
    wait_for(lambda: list(gate.glob("worker-*")), "the worker")
    assert sweep(waiting, backend) == [], "it goes on, and somebody may want it"
    assert sweep(waiting, backend, is_wanted=lambda address: False) == [True]
    assert processes_of(tmp_path) == []
    assert is_cancelled(waiting.address, handle.attempt.number)
    (record,) = attempts(waiting.address)
    assert record.ended == Ending.CANCELLED.value
    assert sweep(waiting, backend, is_wanted=lambda address: False) == [], "done once is done"


def test_what_was_taken_for_lost_from_afar_is_ended_before_the_next_attempt_begins(
    waiting: Job, dispatcher: Dispatcher, gate: Path, tmp_path: Path
):
    """Not the last attempt alone: this one lives on beside a later one of another engine, which was lost as well."""
    backend = dispatcher.backend
    assert isinstance(backend, LocalBackend)
    orphan(waiting, backend)
    (first,) = wait_for(lambda: [path.name for path in gate.glob("worker-*")], "the first attempt's worker")
    supervisor = read_started(next((tmp_path / "state").glob("*-a1")))
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGSTOP)  # or it would notice by itself
    lost = End(ending=Ending.NODE_LOST, what="silent").model_dump(mode="json")
    Lease(waiting.address, 1, "b" * 16).end("node_lost", lost)
    claim(waiting.address, uid="c" * 16, after=1, extra={"backend": "slurm:elsewhere"}).end("node_lost", lost)
    with pytest.raises(JobDetached):
        dispatcher.run(waiting, interruption=lambda: "detach" if len(list(gate.glob("worker-*"))) == 2 else None)
    left = {process.pid for process in processes_of(tmp_path)}
    assert left
    assert left.isdisjoint({supervisor.pid, int(first.removeprefix("worker-"))})
    assert [record.token for record in attempts(waiting.address)] == [1, 2, 3]
    assert dispatcher.cancel(waiting) is True
    assert processes_of(tmp_path) == []


def test_an_attempt_of_another_engine_is_none_of_ours(waiting: Job, dispatcher: Dispatcher):
    claim(waiting.address, uid="b" * 16, after=0, extra={"backend": "slurm:elsewhere", "job_id": job_id(waiting, 1)})
    mark_cancelled(waiting.address, 1)
    assert list(survey([waiting.address], dispatcher.backend, StalenessObserver())) == []
