"""A job: a program, its resolved config and inputs, and the resources it needs. Everything an engine must know."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from infra.artifacts.lease import ATTEMPTS_FOLDER
from infra.dispatch.devices import Device, device
from infra.storage.objects import create_exclusive, read_or_none

GIB = 1024**3

Band = Literal["production", "interactive", "batch"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Resources(_Frozen):
    """What a job runs on. None of it enters the recipe."""

    device: str = Field(default="cpu", description="a name of the device catalogue")
    cpus: int = Field(default=1, ge=1, description="threads that a process may use")
    memory_bytes: int = Field(default=4 * GIB, gt=0, description="of one host, over all processes of the job there")
    disk_bytes: int = Field(default=16 * GIB, gt=0)
    band: Band = "interactive"
    preemptible: bool = True
    region: str | None = None
    env: Mapping[str, str] = Field(default_factory=dict, description="set in the job's environment, over everything else")

    @field_validator("device")
    @classmethod
    def _is_in_the_catalogue(cls, name: str) -> str:
        return device(name).name

    @property
    def target(self) -> Device:
        return device(self.device)


class Timeouts(_Frozen):
    """Three clocks. The start-up grace ends at the first step and never comes back."""

    start_grace_s: float = Field(default=3600.0, gt=0, description="until the first completed step: imports, compilation, cold caches")
    step_s: float = Field(default=1800.0, gt=0, description="between two completed steps")
    wall_s: float | None = Field(default=None, gt=0, description="for the whole process; None for no limit")
    kill_grace_s: float = Field(default=10.0, ge=0, description="between the polite signal and the other one")
    lease_beat_s: float = Field(default=10.0, gt=0, description="between two beats of the lease; a lost one ends the work within this time")


class Job(_Frozen):
    """One artifact to build.

    Attributes:
        program: import path, `module:name`.
        config: the program's resolved config as JSON values.
        inputs: program parameter -> address of an artifact, or partition key -> address.
        payload: what `recipe` hashes.
        address: where the artifact will be published.
    """

    asset: str
    partition: str | None
    program: str
    version: str
    config: dict[str, Any]
    inputs: dict[str, str | dict[str, str]]
    recipe: str
    payload: dict[str, Any]
    address: str
    resources: Resources = Resources()
    timeouts: Timeouts = Timeouts()

    @property
    def title(self) -> str:
        """`asset` or `asset[partition]`: how a person names it."""
        return self.asset if self.partition is None else f"{self.asset}[{self.partition}]"


@dataclass(frozen=True)
class Attempt:
    """One try. `number` is the fencing token of its lease; `uid` scopes everything it writes."""

    number: int
    uid: str


class Spec(_Frozen):
    """What the supervisor and the worker read: the job and which attempt they are."""

    job: Job
    number: int
    uid: str
    job_id: str

    @property
    def attempt(self) -> Attempt:
        return Attempt(self.number, self.uid)

    @property
    def directory(self) -> str:
        return attempt_directory(self.job.address, self.number)


def job_id(job: Job, number: int) -> str:
    """The engine-side name of attempt `number`: always the same, so that submitting twice is attaching.

    At most 52 characters of `[a-z0-9-]`: a legal name for every engine, with room for a suffix. The address
    (root, asset, partition, recipe) enters as a hash, so equal recipes of two assets or stores never meet.
    """
    words = re.sub(r"[^a-z0-9]+", "-", f"{job.asset}-{job.partition or ''}".lower()).strip("-")[:28].strip("-")
    identity = hashlib.sha256("\0".join((job.address, job.asset, job.partition or "", job.recipe)).encode()).hexdigest()[:12]
    return f"{words or 'job'}-{identity}-a{number}"


def attempt_directory(address: str, number: int) -> str:
    """Where an attempt's spec, messages and cancel mark lie: beside its lease, hidden from data discovery."""
    return f"{address}/{ATTEMPTS_FOLDER}/{number:06d}"


def write_spec(job: Job, attempt: Attempt) -> str:
    """Store the spec under the attempt's directory, once; give its URL.

    Whoever attaches to an attempt may write it too: the first one wins, and both mean the same recipe.
    """
    spec = Spec(job=job, number=attempt.number, uid=attempt.uid, job_id=job_id(job, attempt.number))
    url = f"{spec.directory}/job.json"
    create_exclusive(url, spec.model_dump_json(indent=1).encode())
    return url


def read_spec(url: str) -> Spec:
    """Read a spec.

    Raises:
        FileNotFoundError: nothing lies there.
    """
    data = read_or_none(url)
    if data is None:
        raise FileNotFoundError(f"no job spec at {url}; was the store moved or cleaned while the job was queued?")
    return Spec.model_validate_json(data)


def mark_cancelled(address: str, number: int) -> None:
    """Record that someone wants this attempt to end. Written before the engine is asked, so that no start can miss it."""
    create_exclusive(_cancel_mark(address, number), b"{}")


def is_cancelled(address: str, number: int) -> bool:
    return read_or_none(_cancel_mark(address, number)) is not None


def _cancel_mark(address: str, number: int) -> str:
    return f"{attempt_directory(address, number)}/cancel.json"
