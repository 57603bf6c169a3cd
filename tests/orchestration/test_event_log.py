"""A batch of events is stored as Dagster itself would store it, event by event, only in two transactions."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG
from sqlalchemy import Connection, text

from orchestration.dagster_class import ENVIRONMENT, Instance
from orchestration.event_log import BatchingEventLog

KEYS = ["a", "b", "c", "d", "e"]
OURS = "instance_class: {module: orchestration.dagster_class, class: Instance}\n"


@dg.asset(
    partitions_def=dg.StaticPartitionsDefinition(KEYS),
    check_specs=[dg.AssetCheckSpec("is_good", asset="parts")],
)
def parts():  # type: ignore[no-untyped-def]  # Dagster takes an annotation for the output alone
    return dg.MaterializeResult(metadata={"files": 1}, data_version=dg.DataVersion("1"), check_results=[dg.AssetCheckResult(passed=True)])


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was, afterwards: an instance of ours sets it for its whole process."""
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@contextmanager
def instance_in(home: Path, settings: str) -> Iterator[dg.DagsterInstance]:
    home.mkdir()
    (home / "dagster.yaml").write_text(f"{settings}telemetry: {{enabled: false}}\n")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


def materialize_all(instance: dg.DagsterInstance) -> str:
    tags = {ASSET_PARTITION_RANGE_START_TAG: KEYS[0], ASSET_PARTITION_RANGE_END_TAG: KEYS[-1]}
    done = dg.materialize([parts], instance=instance, tags=tags)
    assert done.success
    return done.run_id


def rows(connection: Connection, table: str) -> list[dict[str, Any]]:
    """Without what no two runs have in common, sorted: Dagster goes through partitions in any order."""
    ignored = {"id", "event_id", "event", "run_id", "last_run_id", "evaluation_event", "last_materialization"}
    found = [dict(row) for row in connection.execute(text(f"SELECT * FROM {table}")).mappings()]
    told = [{key: value for key, value in row.items() if key not in ignored and "timestamp" not in key} for row in found]
    return sorted(told, key=repr)


def stored(instance: dg.DagsterInstance, run_id: str) -> dict[str, list[dict[str, Any]]]:
    log = instance.event_log_storage
    with log.index_connection() as index:  # type: ignore[attr-defined]
        told = {table: rows(index, table) for table in ("event_logs", "asset_keys", "asset_event_tags", "asset_check_executions")}
    with log.run_connection(run_id) as run:  # type: ignore[attr-defined]
        return {**told, "run": [row for row in rows(run, "event_logs") if row["dagster_event_type"]]}


def test_a_batch_leaves_the_rows_that_dagster_leaves(tmp_path: Path):
    with instance_in(tmp_path / "plain", "") as plain:
        expected = stored(plain, materialize_all(plain))
    with instance_in(tmp_path / "ours", OURS) as ours:
        assert isinstance(ours, Instance)
        assert isinstance(ours.event_log_storage, BatchingEventLog)
        found = stored(ours, materialize_all(ours))
        assert ours.get_materialized_partitions(dg.AssetKey("parts")) == set(KEYS)
    assert [row["partition"] for row in found["event_logs"] if row["dagster_event_type"] == "ASSET_MATERIALIZATION"] == KEYS
    assert [row["key"] for row in found["asset_event_tags"]] == ["dagster/data_version"] * len(KEYS)
    assert found == expected


def test_a_batch_is_two_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    batches: list[int] = []
    together = BatchingEventLog._store_together

    def counted(self: BatchingEventLog, events: Any) -> None:
        batches.append(len(events))
        together(self, events)

    monkeypatch.setattr(BatchingEventLog, "_store_together", counted)
    with instance_in(tmp_path / "ours", OURS) as ours:
        materialize_all(ours)
    assert batches == [len(KEYS), len(KEYS)], "what is planned, and what is materialized"


def test_every_process_that_opens_the_instance_gets_what_dagster_has_no_setting_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "7")
    with instance_in(tmp_path / "ours", OURS) as ours:
        assert os.environ["DAGSTER_BACKFILL_RETRY_DEFINITION_CHANGED_ERROR"] == "1"
        assert os.environ["DAGSTER_EVENT_BATCH_SIZE"] == "7", "what a person set stays"
        with dg.DagsterInstance.from_ref(ours.get_ref()) as again:
            assert isinstance(again, Instance), "a run opens the instance by reference"
