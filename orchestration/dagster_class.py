"""The class of our Dagster instance, named in `dagster.yaml`: what Dagster has no setting for, in every process of it.

Daemon, webserver, code server and runs all open the instance, however they were started.
"""

import os
from collections.abc import Mapping
from typing import Any

import dagster as dg
import yaml
from dagster._core.instance.ref import InstanceRef
from dagster._serdes import ConfigurableClassData

ENVIRONMENT = {
    # A daemon that is up before the code server finds no asset in the lineage. Without this it takes each backfill
    # under way for one of assets that were removed, and fails it for good; with it, it looks again at the next tick.
    "DAGSTER_BACKFILL_RETRY_DEFINITION_CHANGED_ERROR": "1",
    # What is planned or recorded of many partitions at once is stored at once.
    "DAGSTER_EVENT_BATCH_SIZE": "1000",
}
"""What Dagster asks of the environment each time it needs it; a value that is set there already is kept."""


class Instance(dg.DagsterInstance):
    """Dagster's own instance with `ENVIRONMENT`, and by default our `SqliteStorage`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        super().__init__(*arguments, **named)

    @staticmethod
    def config_schema() -> Mapping[str, Any]:
        """No settings beyond Dagster's."""
        return {}

    @staticmethod
    def config_defaults(base_dir: str) -> Mapping[str, ConfigurableClassData | None]:
        """Dagster's defaults for what `dagster.yaml` leaves out; the storage is ours."""
        storage = ConfigurableClassData("orchestration.event_log", "SqliteStorage", yaml.safe_dump({"base_dir": base_dir}))
        return {**InstanceRef.config_defaults(base_dir), "storage": storage}
