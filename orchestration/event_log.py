"""Dagster's SQLite event log, with a batch of events written as a batch.

Dagster hands over what it plans and records of a run's partitions as one batch, and its SQLite log then stores event by
event: two transactions each, in the run's own file and in the index over all runs. Here it is two for the batch.
"""

from collections.abc import Sequence
from typing import Any

from dagster._core.events import ASSET_EVENTS
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage, _event_logs_directory
from dagster._serdes import ConfigurableClassData
from sqlalchemy import CursorResult


class BatchingEventLog(SqliteEventLogStorage):
    """Same files, same rows, same order; whole batches or nothing of them in each file."""

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        of_assets = [event for event in events if event.get_dagster_event().event_type in ASSET_EVENTS]
        if of_assets:
            self._store_together(of_assets)
        for event in events:  # planned checks have a table of their own
            if event.get_dagster_event().event_type not in ASSET_EVENTS:
                self.store_event(event)

    def _store_together(self, events: Sequence[EventLogEntry]) -> None:
        rows = [self._event_to_row(event) for event in events]
        with self.run_connection(events[0].run_id) as run:
            run.execute(SqlEventLogStorageTable.insert(), rows)
        with self.index_transaction() as index:
            ids = [_key(index.execute(SqlEventLogStorageTable.insert().values(**row))) for row in rows]
            self._store_asset_event_tags(index, events, ids)
            newest = {
                (event.get_dagster_event().event_type, row["asset_key"]): at
                for at, (event, row) in enumerate(zip(events, rows, strict=True))
            }
            for at in newest.values():
                self._store_asset_event(index, events[at], ids[at])


class SqliteStorage(DagsterSqliteStorage):
    """Dagster's default storage with that event log in it."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(base_dir, inst_data)
        self._event_log_storage = BatchingEventLog(_event_logs_directory(base_dir))

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Any) -> "SqliteStorage":
        return cls.from_local(inst_data=inst_data, **config_value)


def _key(inserted: CursorResult[Any]) -> int:
    assert inserted.inserted_primary_key is not None
    return int(inserted.inserted_primary_key[0])
