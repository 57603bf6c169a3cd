"""Dagster's own command line on our lineage: launch, backfill by partition, re-execute, start what ticks.

Everything is published already, so each run reuses its artifact; what is tried here is the way there.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from dagster._core.scheduler.instigation import InstigatorStatus

from tests.journeys.lab import Lab

WORKSPACE = ("-w", "orchestration/workspace.yaml")
PATIENCE_S = 240

BACKFILL = """mutation ($asset: String!, $partitions: [String!]) {
  launchPartitionBackfill(backfillParams: {assetSelection: [{path: [$asset]}], partitionNames: $partitions}) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}"""
AGAIN = """mutation ($run: String!) {
  launchRunReexecution(reexecutionParams: {parentRunId: $run, strategy: ALL_STEPS}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  }
}"""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def daemon(finished_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Dagster's daemon on the finished lab: what `make ui` starts beside the webserver. Gives its log."""
    log = tmp_path_factory.mktemp("daemon") / "daemon.log"
    process = finished_lab.start("dagster-daemon", "run", *WORKSPACE, log=log)
    yield log
    family = [process, *process.children(recursive=True)]
    process.terminate()
    _, left = psutil.wait_procs(family, timeout=30)
    for survivor in left:
        survivor.kill()
    psutil.wait_procs(left, timeout=10)


def ok(lab: Lab, *command: str) -> str:
    done = lab.run(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def graphql(lab: Lab, folder: Path, text: str, **variables: Any) -> dict[str, Any]:
    reply = folder / "reply.json"
    ok(lab, "dagster-graphql", *WORKSPACE, "-t", text, "-v", json.dumps(variables), "-o", str(reply))
    answer: dict[str, Any] = json.loads(reply.read_text())
    assert "errors" not in answer, answer
    return dict(next(iter(answer["data"].values())))


def instance_of(lab: Lab) -> dg.DagsterInstance:
    return dg.DagsterInstance.from_config(str(lab.home / "dagster"))


def materializations(lab: Lab, asset: str, run_ids: set[str]) -> dict[str | None, str]:
    """Partition -> how, of what these runs materialized."""
    with instance_of(lab) as instance:
        records = instance.fetch_materializations(dg.AssetKey(asset), limit=50).records
        found = [record.asset_materialization for record in records if record.run_id in run_ids]
        return {item.partition: str(item.metadata["how"].value) for item in found if item is not None}


def ended(lab: Lab, log: Path, tags: dict[str, str], runs: int) -> set[str]:
    """Wait for so many runs with these tags; their ids, all of them successful."""
    deadline = time.monotonic() + PATIENCE_S
    with instance_of(lab) as instance:
        while time.monotonic() < deadline:
            found = instance.get_runs(dg.RunsFilter(tags=tags))
            if len(found) == runs and all(run.is_finished for run in found):
                assert {run.status for run in found} == {dg.DagsterRunStatus.SUCCESS}, log.read_text()
                return {run.run_id for run in found}
            time.sleep(0.5)
    raise AssertionError(f"{runs} runs with {tags} did not end in {PATIENCE_S} s:\n{log.read_text()}")


def test_one_asset_and_one_partition_are_launched_from_the_command_line(finished_lab: Lab):
    ok(finished_lab, "dg", "launch", "--assets", "raw,extracted", "--partition", "texts")
    ok(finished_lab, "dg", "launch", "--assets", "tokenizer")
    with instance_of(finished_lab) as instance:
        latest = {run.run_id for run in instance.get_runs(limit=2)}
    assert materializations(finished_lab, "extracted", latest) == {"texts": "reused"}
    assert materializations(finished_lab, "tokenizer", latest) == {None: "reused"}


def test_a_backfill_by_partition_is_one_run_a_partition(finished_lab: Lab, daemon: Path, tmp_path: Path):
    """Two sources, and one cell of the ladder."""
    before = finished_lab.digests()
    asked = {"raw": ["pydoc", "texts"], "ladder": ["w16"]}
    launched = {asset: graphql(finished_lab, tmp_path, BACKFILL, asset=asset, partitions=keys) for asset, keys in asked.items()}
    for asset, partitions in asked.items():
        assert launched[asset]["__typename"] == "LaunchBackfillSuccess", launched
        runs = ended(finished_lab, daemon, {"dagster/backfill": launched[asset]["backfillId"]}, len(partitions))
        assert materializations(finished_lab, asset, runs) == dict.fromkeys(partitions, "reused")
    assert finished_lab.digests() == before


def test_a_run_of_the_demo_is_executed_again(finished_lab: Lab, daemon: Path, tmp_path: Path):
    with instance_of(finished_lab) as instance:
        (of_demo,) = [run for run in instance.get_runs() if run.asset_selection and dg.AssetKey("mixture") in run.asset_selection][-1:]
    launched = graphql(finished_lab, tmp_path, AGAIN, run=of_demo.run_id)
    assert launched["__typename"] == "LaunchRunSuccess", launched
    assert ended(finished_lab, daemon, {"dagster/parent_run_id": of_demo.run_id}, 1) == {launched["run"]["runId"]}


def test_the_schedule_and_the_sensors_are_listed_and_started(finished_lab: Lab):
    listed = ok(finished_lab, "dagster", "sensor", "list", *WORKSPACE)
    assert "default_automation_condition_sensor" in listed, "the conditions of the assets are ticked by it, once it is started"
    assert "Started schedule nightly_refresh" in ok(finished_lab, "dagster", "schedule", "start", *WORKSPACE, "nightly_refresh")
    assert "Started sensor new_warc_files" in ok(finished_lab, "dagster", "sensor", "start", *WORKSPACE, "new_warc_files")
    with instance_of(finished_lab) as instance:
        states = {state.instigator_name: state for state in instance.all_instigator_state()}
        for name in ("nightly_refresh", "new_warc_files"):
            assert states[name].is_running
            instance.update_instigator_state(states[name].with_status(InstigatorStatus.STOPPED))
