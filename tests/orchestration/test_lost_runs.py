"""A run whose process was killed ends when somebody looks; one that goes on is left alone."""

import os
import socket
import subprocess
import sys

import dagster as dg
import pytest

from assets.process import PROCESS_TAG, sign, tag_of_this_process
from orchestration.lost_runs import fail_lost_runs


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
