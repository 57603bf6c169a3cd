"""Where the shards of a stage are worked on. Imports nothing heavy: the lineage is planned without pyarrow."""

from typing import Literal

from pydantic import Field

from infra.artifacts.config import ProgramConfig
from ops.units import MiB


class Execution(ProgramConfig):
    """Where the shards of a stage are worked on, and with how much memory. Nothing here changes a byte of what comes out."""

    engine: Literal["embedded", "ray"] = "embedded"  # this machine, or the Ray cluster at ray_address
    workers: int = Field(1, ge=1)  # shards at a time; the one embedded worker is the job's own process
    memory_bytes: int = Field(1024 * MiB, ge=256 * MiB)  # of each worker: batches and sorts are sized by it
    ray_address: str = "auto"  # the cluster that this process is part of
