"""What Ray says of a job, and what that says of the attempt. Pure."""

import signal
from typing import Literal

from pydantic import BaseModel, ConfigDict

from infra.dispatch.endings import End, Ending, describe

# The driver's own exit codes, beside those of `infra.dispatch.endings.EXIT_CODES` that it passes on from a supervisor.
SUPERVISOR_KILLED = 119
HOST_LOST = 120
HOST_OUT_OF_MEMORY = 121
DRIVER_FAILED = 122

_NEVER_STARTED = (
    "RUNTIME_ENV_SETUP_FAILURE",
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
    "JOB_SUPERVISOR_ACTOR_START_FAILURE",
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE",
    "JOB_ENTRYPOINT_COMMAND_START_ERROR",
)
_KILLED = 128 + signal.SIGKILL  # a shell's way to say so; 130, 134 and 143 are words of the contract


class JobInfo(BaseModel):
    """A job as Ray's Jobs API describes it; fields that we don't read are left out.

    Attributes:
        end_time: of a job that is over, in ms of the cluster's clock.
        over_for_s: how long ago that was by the same clock; None while it isn't over, or where the server tells no time.
    """

    model_config = ConfigDict(frozen=True)

    status: Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"]
    message: str | None = None
    error_type: str | None = None
    driver_exit_code: int | None = None
    metadata: dict[str, str] | None = None
    end_time: int | None = None
    over_for_s: float | None = None

    @property
    def is_over(self) -> bool:
        return self.status not in ("PENDING", "RUNNING")


def engine_word(info: JobInfo, *, cancelled: bool, heard: bool) -> End | None:
    """Ray's own word on how the attempt of a job that is over ended; None where the hosts' records decide.

    Args:
        cancelled: whether somebody had asked for its end.
        heard: whether any host recorded its end.
    """
    if info.status == "STOPPED":
        if cancelled:
            return End(ending=Ending.CANCELLED, what="it was cancelled")
        return End(ending=Ending.PREEMPTED, what="somebody stopped the job in Ray, and nobody had cancelled it")
    if info.status == "SUCCEEDED":
        return None
    code = info.driver_exit_code
    if code == HOST_LOST:
        return End(ending=Ending.NODE_LOST, what="Ray lost a host of the gang; its driver's log says which")
    if code == HOST_OUT_OF_MEMORY:
        return End(ending=Ending.OUT_OF_MEMORY, what="Ray ended a host of the gang because its node ran out of memory")
    if code == SUPERVISOR_KILLED:
        return End(ending=Ending.SUPERVISOR_LOST, what="a host's supervisor was killed; what it left was killed, too")
    if code is not None and (code < 0 or code == _KILLED):
        killed = describe(code if code < 0 else -signal.SIGKILL)
        return End(ending=Ending.NODE_LOST, what=f"the gang's driver was {killed} on its node")
    if code is not None:
        what = f"the gang's driver ended with {describe(code)} and no host had started: {_last_line(info)}"
        return None if heard else End(ending=Ending.CRASHED, what=what)
    if info.error_type in _NEVER_STARTED:
        return End(ending=Ending.NEVER_STARTED, what=f"Ray did not start the gang's driver: {_last_line(info)}")
    return End(ending=Ending.NODE_LOST, what=f"Ray lost the gang's driver: {_last_line(info)}")


def _last_line(info: JobInfo) -> str:
    told = (info.message or info.error_type or "").strip().splitlines()
    return told[-1][:500] if told else "no reason given"
