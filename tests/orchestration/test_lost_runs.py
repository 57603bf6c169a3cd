"""A run whose process was killed ends as failed when the next command starts; one that goes on is left alone."""

import subprocess
import sys

import dagster as dg
import pytest

from orchestration.lost_runs import PROCESS_TAG, fail_lost_runs, tag_of_this_process


def tag_of_a_dead_process() -> str:
    probe = "from orchestration.lost_runs import tag_of_this_process; print(tag_of_this_process())"
    return subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True).stdout.strip()


@dg.job
def nothing() -> None: ...


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTED])
def test_runs_of_the_dead_fail_and_those_of_the_living_go_on(status: dg.DagsterRunStatus):
    host, pid, start = tag_of_this_process().rsplit("/", 2)
    tags = {
        "dead": tag_of_a_dead_process(),
        "number used again": f"{host}/{pid}/1.0",
        "alive": f"{host}/{pid}/{start}",
        "elsewhere": f"other-{host}/1/{start}",
        "launched": None,
    }
    with dg.DagsterInstance.ephemeral() as instance:
        runs = {
            name: instance.create_run_for_job(nothing, status=status, tags={PROCESS_TAG: tag} if tag else {}).run_id
            for name, tag in tags.items()
        }
        again = instance.create_run_for_job(
            nothing, status=status, tags={PROCESS_TAG: str(tags["dead"])}, parent_run_id=runs["dead"], root_run_id=runs["dead"]
        )
        fail_lost_runs(instance)
        failed = {name for name, run in runs.items() if instance.get_run_by_id(run).status == dg.DagsterRunStatus.FAILURE}  # type: ignore[union-attr]
        assert instance.get_run_by_id(again.run_id).status == status, "the UI's own run, with its parent's tags"  # type: ignore[union-attr]
    assert failed == {"dead", "number used again"}
