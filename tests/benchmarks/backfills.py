"""Backfills by all of Dagster as separate processes: how long, what failed, and what a restart in the middle left."""

import json
import os
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES

PATIENCE_S = 1800.0
BEGUN = (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)
LAUNCH = """mutation ($asset: String!, $partitions: [String!]) {
  launchPartitionBackfill(backfillParams: {assetSelection: [{path: [$asset]}], partitionNames: $partitions}) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}"""
STATUS = """query ($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { assetBackfillData {
  assetBackfillStatuses { ... on AssetPartitionsStatusCounts {
    numPartitionsTargeted numPartitionsMaterialized numPartitionsFailed numPartitionsInProgress } } } } } }"""
LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { loadStatus locationOrLoadError { __typename } } } } }"""


@dataclass(frozen=True)
class Backfilled:
    """One backfill.

    Attributes:
        seconds: from its launch until its last run ended.
        told_s: from its launch until its daemon wrote that it is over; Dagster looks every 30 s.
        failed: runs that failed and were not made good by another, and partitions that it lists as failed.
        stuck: partitions that it neither materialized nor failed, and runs that go on for ever.
    """

    status: str
    runs: int
    seconds: float
    told_s: float
    failed: int
    stuck: int


@dataclass
class Servers:
    """Code server, daemon and webserver of one code location, on one home."""

    home: Path
    module: str
    code_port: int
    web_port: int
    running: list[psutil.Popen] = field(default_factory=list)

    def start(self) -> None:
        """All three at once, as a machine that boots does; returns when the webserver sees the lineage."""
        workspace = self.home / "workspace.yaml"
        location = {"host": "127.0.0.1", "port": self.code_port, "location_name": "bench"}
        workspace.write_text(json.dumps({"load_from": [{"grpc_server": location}]}))
        commands = (
            ("dagster", "api", "grpc", "-m", self.module, "-h", "127.0.0.1", "-p", str(self.code_port)),
            ("dagster-daemon", "run", "-w", str(workspace)),
            ("dagster-webserver", "-w", str(workspace), "-h", "127.0.0.1", "-p", str(self.web_port)),
        )
        environment = {**os.environ, "DAGSTER_HOME": str(self.home)}
        with (self.home / "servers.log").open("ab") as log:
            for tool, *arguments in commands:
                argv = [str(Path(sys.executable).with_name(tool)), *arguments]
                self.running.append(psutil.Popen(argv, stdout=log, stderr=log, env=environment, start_new_session=True))
        _until("the webserver sees the lineage", self._is_loaded)

    def kill(self) -> None:
        """No part of Dagster has a word to say about it. The runs go on: they need none of the three."""
        for process in self.running:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)
        self.running.clear()

    def end(self) -> None:
        """The servers and all that they started."""
        family = [*self.running, *(child for process in self.running for child in process.children(recursive=True))]
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(family, timeout=30)
        self.running.clear()

    def ask(self, text: str, **variables: Any) -> Any:
        body = json.dumps({"query": text, "variables": variables}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.web_port}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            (found,) = json.load(reply)["data"].values()
        return found

    def _is_loaded(self) -> bool:
        for process in self.running:
            if (code := process.poll()) is not None:
                told = (self.home / "servers.log").read_text()[-1000:]
                raise RuntimeError(f"a server of Dagster ended with {code}: {told}")
        entries = self.ask(LOCATIONS)["locationEntries"]
        return [(entry["locationOrLoadError"] or {}).get("__typename") for entry in entries] == ["RepositoryLocation"]


@contextmanager
def servers_of(home: Path, module: str) -> Iterator[Servers]:
    code_port, web_port = _free_ports(2)
    servers = Servers(home, module, code_port, web_port)
    try:
        servers.start()
        yield servers
    finally:
        servers.end()


def backfill(home: Path, module: str, asset: str, keys: list[str], *, restart: bool) -> Backfilled:
    """All partitions of an asset; with `restart`, the servers are killed once a run of it has started, and are started again."""
    # The instance first: three processes at once must not create its tables.
    with dg.DagsterInstance.from_config(str(home)) as instance, servers_of(home, module) as servers:
        began = time.time()
        launched = servers.ask(LAUNCH, asset=asset, partitions=keys)
        backfill_id = str(launched["backfillId"])
        if restart:
            _until("a run of the backfill starts", lambda: any(run.status in BEGUN for run in _runs(instance, backfill_id)))
            servers.kill()
            servers.start()
        try:
            _until("the backfill is over", lambda: _status(instance, backfill_id) is not None)
        except TimeoutError:
            print(f"{asset}: after {PATIENCE_S:.0f} s the backfill goes on; see {home}", file=sys.stderr)
        return _judged(servers, instance, backfill_id, asset, began)


def _judged(servers: Servers, instance: dg.DagsterInstance, backfill_id: str, asset: str, began: float) -> Backfilled:
    told_s = time.time() - began
    found = instance.get_backfill(backfill_id)
    assert found is not None
    records = instance.get_run_records(dg.RunsFilter(tags={"dagster/backfill": backfill_id}))
    graph = servers.ask(STATUS, id=backfill_id)["assetBackfillData"]["assetBackfillStatuses"][0]
    ends = [record.end_time for record in records if record.end_time]
    good = {_family(record.dagster_run) for record in records if record.dagster_run.status is dg.DagsterRunStatus.SUCCESS}
    failed = [record.dagster_run for record in records if record.dagster_run.status is dg.DagsterRunStatus.FAILURE]
    return Backfilled(
        status=found.status.value,
        runs=len(records),
        seconds=max(ends, default=time.time()) - began,
        told_s=told_s,
        failed=graph["numPartitionsFailed"] + sum(_family(run) not in good for run in failed),
        stuck=graph["numPartitionsTargeted"]
        - graph["numPartitionsMaterialized"]
        - graph["numPartitionsFailed"]
        + sum(not record.dagster_run.is_finished for record in records),
    )


def _family(run: dg.DagsterRun) -> str:
    return run.root_run_id or run.run_id


def _runs(instance: dg.DagsterInstance, backfill_id: str) -> list[dg.DagsterRun]:
    return list(instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill_id})))


def _status(instance: dg.DagsterInstance, backfill_id: str) -> str | None:
    found = instance.get_backfill(backfill_id)
    return found.status.value if found is not None and found.status in BULK_ACTION_TERMINAL_STATUSES else None


def _free_ports(number: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def _until(what: str, is_so: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if is_so():
                return
        except OSError:
            pass  # a server that is starting
        time.sleep(0.5)
    raise TimeoutError(f"{what}: not in {PATIENCE_S:.0f} s")
