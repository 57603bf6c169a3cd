"""A run whose process was killed ends when somebody looks; one that goes on is left alone."""

import os
import socket
import subprocess
import sys

import dagster as dg
import pytest
from dagster._core.storage.tags import AUTO_RETRY_RUN_ID_TAG, WILL_RETRY_TAG

from assets.process import PROCESS_TAG, sign, tag_of_this_process
from orchestration.lost_runs import FORGOTTEN_S, ask_for_forgotten_retries, fail_lost_runs


def number_of_a_dead_process() -> int:
    probe = subprocess.Popen([sys.executable, "-c", ""])
    probe.wait()
    return probe.pid


@dg.job
def nothing() -> None: ...


STATUSES = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


@pytest.mark.parametrize("status", STATUSES)
def test_runs_of_the_dead_end_and_those_of_the_living_go_on(status: dg.DagsterRunStatus):
    here, start = socket.gethostname(), tag_of_this_process("").rsplit("/", 1)[1]
    processes = {
        "dead": f"{here}/{number_of_a_dead_process()}/1.0",
        "number used again": f"{here}/{os.getpid()}/1.0",
        "alive": f"{here}/{os.getpid()}/{start}",
        "elsewhere": f"other-{here}/1/{start}",
        "unsigned": None,
    }
    with dg.DagsterInstance.ephemeral() as instance:
        runs = {name: instance.create_run_for_job(nothing, status=status).run_id for name in processes}
        for name, process in processes.items():
            if process:
                instance.add_run_tags(runs[name], {PROCESS_TAG: f"{runs[name][:8]}/{process}"})
        inherited = {PROCESS_TAG: f"{runs['dead'][:8]}/{processes['dead']}"}
        again = instance.create_run_for_job(nothing, status=status, tags=inherited, parent_run_id=runs["dead"], root_run_id=runs["dead"])
        ended = fail_lost_runs(instance)
        expected = dg.DagsterRunStatus.CANCELED if status is dg.DagsterRunStatus.CANCELING else dg.DagsterRunStatus.FAILURE
        assert {name for name, run in runs.items() if instance.get_run_by_id(run).status is expected} == {"dead", "number used again"}  # type: ignore[union-attr]
        assert instance.get_run_by_id(again.run_id).status is status, "with its parent's tags, and no process yet"  # type: ignore[union-attr]
        assert set(ended) == {runs["dead"], runs["number used again"]}
        assert fail_lost_runs(instance) == []


def test_a_run_that_this_process_signed_is_alive():
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED)
        sign(instance, run.run_id)
        assert fail_lost_runs(instance) == []


def failures(instance: dg.DagsterInstance, run_id: str) -> int:
    """How often Dagster's daemon gets to see that a run failed."""
    return len(instance.all_logs(run_id, of_type=dg.DagsterEventType.RUN_FAILURE))


def test_a_retry_that_the_daemon_forgot_is_asked_for_once(monkeypatch: pytest.MonkeyPatch):
    """It saw the event of the failure before the run's status and tags were written."""
    settings = {"run_retries": {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False}}
    with dg.DagsterInstance.ephemeral(settings=settings) as instance:
        names = ("forgotten", "retried", "given up")
        runs = {name: instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED) for name in names}
        for run in runs.values():
            instance.report_run_failed(run)
            assert instance.get_run_by_id(run.run_id).tags[WILL_RETRY_TAG] == "true"  # type: ignore[union-attr]
        instance.add_run_tags(runs["retried"].run_id, {AUTO_RETRY_RUN_ID_TAG: "its retry"})
        instance.add_run_tags(runs["given up"].run_id, {WILL_RETRY_TAG: "false"})
        assert ask_for_forgotten_retries(instance) == [], "the daemon looks every few seconds: it may be on its way"
        monkeypatch.setattr("orchestration.lost_runs.FORGOTTEN_S", (-1.0, FORGOTTEN_S[1]))
        assert ask_for_forgotten_retries(instance) == [runs["forgotten"].run_id]
        assert ask_for_forgotten_retries(instance) == []
        assert {name: failures(instance, run.run_id) for name, run in runs.items()} == {"forgotten": 2, "retried": 1, "given up": 1}
