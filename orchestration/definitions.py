"""Start reading here: the lineage (`assets/`), what runs it, when, and with which resources."""

from pathlib import Path

import dagster as dg

import assets
from assets.factory import Factory
from assets.partitions import PROFILE
from orchestration.jobs import JOBS
from orchestration.schedules import SCHEDULES
from orchestration.sensors import SENSORS

FACTORY = Factory(PROFILE)

defs = dg.Definitions.merge(
    dg.load_from_defs_folder(path_within_project=Path(assets.__file__).parent),
    dg.Definitions(
        resources={"factory": FACTORY},
        jobs=JOBS,
        schedules=SCHEDULES,
        sensors=SENSORS,
        # A step only waits for its job: one process, half the cost of the multiprocess executor.
        executor=dg.in_process_executor,
    ),
)
