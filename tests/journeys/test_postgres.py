"""The lab on PostgreSQL: Dagster's runs, events and schedules, and the catalog, in one server that others may share."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from sqlalchemy import create_engine, text

from tests.infra.catalog.postgres_server import Server, serving
from tests.infra.catalog.test_catalog import rows
from tests.journeys.lab import PROFILE, Lab

pytestmark = [pytest.mark.faults, pytest.mark.postgres, pytest.mark.timeout(900)]

WORKSPACE = ("-w", "orchestration/workspace.yaml")
PATIENCE_S = 300
BACKFILL = """mutation { launchPartitionBackfill(backfillParams: {assetSelection: [{path: ["normalized"]}], partitionNames: ["texts"]}) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def shared(lab: Lab, server: Server, tmp_path: Path) -> Lab:
    """A lab whose databases are the server's, and whose sources are a folder of texts."""
    profile = tmp_path / "shared.yaml"
    storage = {"dagster": server.new_database(), "catalog": server.new_database()}
    profile.write_text(f"extends: {PROFILE}\nname: shared\nstorage: {json.dumps(storage)}\n")
    return Lab(lab.home, lab.texts, profile)


def ok(lab: Lab, *command: str) -> str:
    done = lab.run(*command, timeout_s=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def scalar(url: str, query: str) -> Any:
    engine = create_engine(with_driver(url))
    with engine.connect() as connection:
        found = connection.execute(text(query)).scalar()
    engine.dispose()
    return found


def with_driver(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg2://")


def test_the_data_half_runs_with_everything_on_postgresql(shared: Lab, tmp_path: Path):
    storage = json.loads(shared.profile.read_text().split("storage: ")[1])
    dagster, catalog = storage["dagster"], storage["catalog"]
    assert "jobs ran" in ok(shared, "seaway", "demo", "--job", "data")
    assert (shared.home / "dagster" / "dagster.yaml").stat().st_mode & 0o077 == 0, "a URL may hold a password"
    assert not list((shared.home / "dagster").glob("**/*.db")), "nothing fell back to SQLite"
    runs = scalar(dagster, "select count(*) from runs where status = 'SUCCESS'")
    assert runs >= 5
    assert scalar(dagster, "select count(*) from event_logs where dagster_event_type = 'ASSET_MATERIALIZATION'") >= 15

    ok(shared, "dagster", "schedule", "start", *WORKSPACE, "nightly_refresh")
    assert scalar(dagster, "select count(*) from instigators where status = 'RUNNING'") >= 1
    ok(shared, "dagster", "schedule", "stop", *WORKSPACE, "nightly_refresh")

    backfill_on(shared, tmp_path)
    assert scalar(dagster, "select count(*) from runs where status = 'SUCCESS'") == runs + 1

    ok(shared, "seaway", "catalog", "rebuild")
    sqlite = tmp_path / "sqlite.yaml"
    sqlite.write_text(f"extends: {shared.profile}\nstorage: {{catalog: 'sqlite:///{tmp_path}/catalog.sqlite'}}\n")
    ok(Lab(shared.home, shared.texts, sqlite), "seaway", "catalog", "rebuild")
    assert rows(with_driver(catalog)) == rows(f"sqlite:///{tmp_path}/catalog.sqlite")
    assert len(rows(with_driver(catalog))["artifacts"]) == len(shared.digests())

    other = tmp_path / "other.yaml"
    other.write_text(f"extends: {shared.profile}\nstorage: {{dagster: 'postgresql://ada:secret@elsewhere/x'}}\n")
    refused = Lab(shared.home, shared.texts, other).run("seaway", "demo", "--job", "data")
    assert refused.returncode == 1
    told = " ".join((refused.stdout + refused.stderr).split())
    assert "keeps Dagster's records in postgresql+psycopg2://dagster@127.0.0.1" in told
    assert "remove that file to have it written anew" in told
    assert "secret" not in told


def backfill_on(lab: Lab, folder: Path) -> None:
    """A backfill through the daemon, to its end."""
    process = lab.start("dagster-daemon", "run", *WORKSPACE, log=folder / "daemon.log")
    try:
        reply = folder / "reply.json"
        ok(lab, "dagster-graphql", *WORKSPACE, "-t", BACKFILL, "-o", str(reply))
        launched = json.loads(reply.read_text())["data"]["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        with dg.DagsterInstance.from_config(str(lab.home / "dagster")) as instance:
            deadline = time.monotonic() + PATIENCE_S
            while (status := instance.get_backfill(launched["backfillId"]).status.value) == "REQUESTED":  # type: ignore[union-attr]
                assert time.monotonic() < deadline, (folder / "daemon.log").read_text()[-5000:]
                time.sleep(0.5)
            assert status == "COMPLETED_SUCCESS"
    finally:
        family = [process, *process.children(recursive=True)]
        process.terminate()
        _, left = psutil.wait_procs(family, timeout=30)
        for survivor in left:
            survivor.kill()
        psutil.wait_procs(left, timeout=10)
