"""What a lab says about its Slurm: which cluster, which shared folder, and what a priority band means there."""

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from infra.dispatch.job import Band, Resources

_SET_BY_SEAWAY = re.compile(
    r"--?(requeue|no-requeue|job-name|comment|dependency|array|output|open-mode|nodes|ntasks|wait|parsable|J|d|a|o|N|n|W)\b"
)


class Lane(BaseModel):
    """Where the jobs of one band queue. What is left out is Slurm's default for the user."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: str | None = None
    qos: str | None = None
    account: str | None = None
    arguments: tuple[str, ...] = Field(default=(), description="further arguments of sbatch, such as --reservation=x")

    @field_validator("arguments")
    @classmethod
    def _leave_what_keeps_attempts_apart_alone(cls, arguments: tuple[str, ...]) -> tuple[str, ...]:
        if taken := [argument for argument in arguments if _SET_BY_SEAWAY.match(argument)]:
            raise ValueError(f"slurm: {', '.join(taken)} is set by Seaway for each job; leave it out of a band's arguments")
        return arguments


class SlurmConfig(BaseModel):
    """A Slurm cluster that this machine can submit to with sbatch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["slurm"] = "slurm"
    cluster: str = Field(description="ClusterName, as `scontrol show config` prints it; compared before the first submission")
    folder: str = Field(description="a folder that submit hosts and compute nodes share under one path: logs and what was submitted")
    conf: str | None = Field(default=None, description="SLURM_CONF; None for the machine's own")
    bands: Mapping[Band, Lane] = Field(default_factory=dict, description="a band that is missing uses Slurm's defaults")
    gres: Mapping[str, str] = Field(
        default_factory=dict, description="device family -> GRES, such as h100 -> gpu or gpu:hopper; gpu:{family} unless named"
    )
    exclusive: bool = Field(default=False, description="whole nodes, whatever a job asks for")
    racks: Literal["tree", "block"] | None = Field(
        default=None, description="how Slurm knows NVLink domains: as leaf switches (topology/tree) or as blocks (topology/block)"
    )
    host_address: str = Field(
        default="{node}",
        pattern=r"^[A-Za-z0-9.:_{}-]+$",
        description="how other hosts reach one; {node} is its NodeName: '{node}.cluster.lab'",
    )
    python: str | None = Field(default=None, description="the interpreter on the nodes; None for the submitter's path")
    command_timeout_s: float = Field(default=30.0, gt=0, description="for one call of squeue, sbatch, scancel or scontrol")
    queue_age_s: float = Field(default=2.0, ge=0, description="how old a shared look at the queue may be; one squeue serves every poll")
    completion_s: float = Field(default=300.0, gt=0, description="how long a cancel waits for Slurm to say that nothing is left")
    unsatisfiable_s: float = Field(
        default=60.0, ge=0, description="how long a job may wait for a reason that only a change of the cluster could cure"
    )
    accounting: bool = Field(default=False, description="slurmdbd runs: ask sacct about a job that slurmctld has forgotten")

    @field_validator("folder")
    @classmethod
    def _is_a_plain_absolute_path(cls, folder: str) -> str:
        if not folder.startswith("/") or "%" in folder or "\\" in folder:
            raise ValueError(f"slurm: folder {folder!r} must be an absolute path without % and backslashes: Slurm would expand them")
        return folder.rstrip("/")

    def refusal(self, resources: Resources) -> str | None:
        """Why no job with these resources can ever run here, and what to choose instead; None if one may."""
        target = resources.target
        if target.kind == "tpu":
            return f"backend slurm has no TPUs and {target.name} is one; choose cpu, cpuxN or a GPU, or a kubernetes or ray backend"
        if target.topology.domain == "rack" and target.hosts > 1 and self.racks is None:
            return f"{target.name} must lie in NVLink domains; say with the backend's `racks` (tree or block) how Slurm knows them"
        return None

    def lane(self, band: Band) -> Lane:
        return self.bands.get(band, Lane())
