"""All of Dagster as separate processes - code server, daemon, webserver - on the gated lineage, to be killed one by one."""

import json
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import psutil
import pytest

from assets.process import PROCESS_TAG
from assets.profile import load_profile
from infra.artifacts.lease import AttemptRecord, attempts
from orchestration.instance import open_instance
from orchestration.slots import held_by_the_dead
from tests.journeys.lab import PROFILE, Lab

PATIENCE_S = 300  # of one step, on a machine that others use too
Part = Literal["code", "daemon", "web"]

LAUNCH = """mutation ($assets: [AssetKeyInput!], $tags: [ExecutionTag!]) {
  launchRun(executionParams: {
    selector: {repositoryLocationName: "gated", repositoryName: "__repository__", jobName: "__ASSET_JOB", assetSelection: $assets},
    runConfigData: {}, executionMetadata: {tags: $tags}
  }) { __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } }
}"""
AGAIN = """mutation ($run: String!) { launchRunReexecution(reexecutionParams: {parentRunId: $run, strategy: FROM_FAILURE}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
BACKFILL = """mutation ($asset: String!, $partitions: [String!]) {
  launchPartitionBackfill(backfillParams: {assetSelection: [{path: [$asset]}], partitionNames: $partitions}) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
TERMINATE = """mutation ($run: String!) { terminateRun(runId: $run, terminatePolicy: SAFE_TERMINATE) {
    __typename ... on TerminateRunFailure { message } ... on PythonError { message } } }"""
LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { loadStatus locationOrLoadError { __typename } } } } }"""


@dataclass
class Plant:
    """One Dagster. `instance` reads its records; `gate` is where jobs wait."""

    lab: Lab
    gate: Path
    log: Path
    instance: dg.DagsterInstance
    code_port: int
    web_port: int
    running: dict[Part, psutil.Popen] = field(default_factory=dict)

    def start(self, *which: Part) -> None:
        """Start these parts, and wait until the webserver sees the code location."""
        workspace = ("-w", str(self.lab.home / "workspace.yaml"))
        commands: dict[Part, tuple[str, ...]] = {
            "code": ("dagster", "api", "grpc", "-m", "tests.journeys.gated", "-h", "127.0.0.1", "-p", str(self.code_port)),
            "daemon": ("dagster-daemon", "run", *workspace),
            "web": ("dagster-webserver", *workspace, "-h", "127.0.0.1", "-p", str(self.web_port)),
        }
        for part in which:
            self.running[part] = self.lab.start(*commands[part], log=self.log)
        wait_for("the webserver sees the code location", lambda: not self.running.get("web") or self._is_loaded())

    def stop(self, part: Part, how: signal.Signals) -> None:
        process = self.running.pop(part)
        process.send_signal(how)
        process.wait(timeout=PATIENCE_S)

    def restart(self, part: Part, how: signal.Signals) -> None:
        self.stop(part, how)
        self.start(part)

    def query(self, text: str, **variables: Any) -> Any:
        """The one thing that a query or mutation asks for; it must have worked."""
        body = json.dumps({"query": text, "variables": variables}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.web_port}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            answer = json.load(reply)
        assert "errors" not in answer, answer
        (found,) = answer["data"].values()
        assert "Error" not in str(found.get("__typename")), found
        return found

    def launch(self, *assets: str, **tags: str) -> str:
        """The id of a run of these assets."""
        keys = [{"path": [asset]} for asset in assets]
        pairs = [{"key": key.replace("_", "/", 1), "value": value} for key, value in tags.items()]
        return str(self.query(LAUNCH, assets=keys, tags=pairs)["run"]["runId"])

    def status(self, run: str) -> dg.DagsterRunStatus:
        return self.run(run).status

    def run(self, run: str) -> dg.DagsterRun:
        found = self.instance.get_run_by_id(run)
        assert found is not None
        return found

    def ends(self, run: str) -> dg.DagsterRunStatus:
        """How a run ends."""
        wait_for(f"run {run} ends", lambda: self.run(run).is_finished, self.log)
        return self.status(run)

    def retry_of(self, run: str) -> str:
        """The run by which Dagster itself tries a failed one again."""
        found = wait_for(
            "the daemon runs it again", lambda: self.instance.get_runs(dg.RunsFilter(tags={"dagster/parent_run_id": run})), self.log
        )
        return found[0].run_id

    def run_worker(self, run: str) -> psutil.Process:
        """The process that executes a run, once it got to the job."""
        tag = wait_for(f"run {run} is signed", lambda: self._own_tag(run), self.log)
        return psutil.Process(int(tag.split("/")[2]))

    def worker_at(self, gate: Path) -> psutil.Process:
        """The only process that a job ever had, alive and waiting at its gate."""
        process = psutil.Process(int(self.worker_mark(gate).removeprefix("worker-")))
        assert process.is_running()
        return process

    def worker_mark(self, gate: Path) -> str:
        """`worker-{pid}` of the only process that ever came to a gate."""
        wait_for(f"a job comes to {gate}", lambda: list(gate.glob("worker-*")), self.log)
        (mark,) = gate.glob("worker-*")
        return mark.name

    def attempts(self, asset: str) -> list[AttemptRecord]:
        """Every attempt of every partition of an asset."""
        addresses = self.lab.home.glob(f"artifacts/{asset}/*/*")
        return [record for address in sorted(addresses) for record in attempts(str(address))]

    def held_slots(self, pool: str) -> set[str]:
        """The runs that hold a slot of a pool."""
        return {slot.run_id for slot in self.instance.event_log_storage.get_concurrency_info(pool).claimed_slots}

    def require_no_leak(self) -> None:
        wait_for("slots of ended runs are free again", lambda: not held_by_the_dead(self.instance), self.log)

    def _own_tag(self, run: str) -> str | None:
        tag = self.run(run).tags.get(PROCESS_TAG, "")
        return tag if tag.startswith(run[:8]) else None  # and not its parent's

    def _is_loaded(self) -> bool:
        entries = self.query(LOCATIONS)["locationEntries"]
        return [(entry["locationOrLoadError"] or {}).get("__typename") for entry in entries] == ["RepositoryLocation"]


@contextmanager
def plant_of(lab: Lab) -> Iterator[Plant]:
    """All of Dagster on a lab of its own, with one slot for `slow` and four for `parts`; ended by process id."""
    gate = lab.home / "gate"
    for part in ("a", "b", "c", "d"):
        (gate / "parts" / part).mkdir(parents=True)
    profile = lab.home / "profile.yaml"
    profile.write_text(f"extends: {PROFILE}\nconcurrency: {{runs: 6, pools: {{host: 1, accelerator: 4}}}}\n")
    mine = Lab(lab.home, lab.texts, profile, {"GATE": str(gate)})
    with pytest.MonkeyPatch.context() as patch:
        for name, value in mine.environment.items():
            patch.setenv(name, value)
        instance = open_instance(load_profile(str(profile)))
    code_port, web_port = free_ports(2)
    location = {"host": "127.0.0.1", "port": code_port, "location_name": "gated"}
    (lab.home / "workspace.yaml").write_text(json.dumps({"load_from": [{"grpc_server": location}]}))
    plant = Plant(mine, gate, lab.home / "dagster.log", instance, code_port, web_port)
    try:
        with instance:
            plant.start("code", "daemon", "web")
            yield plant
    finally:
        family = [*plant.running.values(), *(child for process in plant.running.values() for child in children_of(process))]
        for process in family:
            end(process)


def free_ports(number: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def children_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def end(process: psutil.Process) -> None:
    try:
        process.kill()
        process.wait(timeout=30)
    except psutil.NoSuchProcess:
        return


def wait_for[T](what: str, find: Callable[[], T], log: Path | None = None) -> T:
    """Ask until the answer is something true; servers that are starting count as false."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if found := find():
                return found
        except OSError:
            pass
        time.sleep(0.2)
    told = log.read_text()[-6000:] if log else ""
    raise AssertionError(f"{what} did not happen in {PATIENCE_S} s\n{told}")
