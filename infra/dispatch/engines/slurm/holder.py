"""Which Slurm job holds an attempt: one conditional create in the attempt's directory decides, whoever raced before it.

    {attempt's directory}/engine.json   created by the first Slurm job of the attempt that starts, or
                                        by whoever decides that none shall start any more, with the end that this means

Slurm has no conditional submit, so two submitters may queue two jobs. Only the holder does anything.
"""

from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from infra.dispatch.endings import End
from infra.storage.objects import create_exclusive, read_or_none


class Holder(BaseModel):
    """Who holds the attempt.

    Attributes:
        job: number of the Slurm job; None if no job may start.
        end: what it means that none may.
        nonce: of the process that wrote this. Slurm starts a job anew under its old number after a requeue, or after
            slurmctld lost its last minutes: the second start must not take the first one's record for its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: str | None
    end: End | None = None
    nonce: str = Field(default_factory=lambda: uuid4().hex)


def take(directory: str, holder: Holder) -> bool:
    """Become the holder; False if somebody else is."""
    return create_exclusive(_url(directory), holder.model_dump_json().encode())


def holder_of(directory: str) -> Holder | None:
    data = read_or_none(_url(directory))
    return None if data is None else Holder.model_validate_json(data)


def close(directory: str, end: End) -> Holder:
    """Have no job start from now on, unless one has; give who holds the attempt then."""
    take(directory, Holder(job=None, end=end))
    holder = holder_of(directory)
    assert holder is not None
    return holder


def _url(directory: str) -> str:
    return f"{directory}/engine.json"
