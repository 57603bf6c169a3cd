"""Every way in which a process can end, and what each one costs: one table, no judgement elsewhere."""

import signal
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict


class Ending(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    UNPUBLISHED = "unpublished"
    APPLICATION_ERROR = "application_error"
    INVALID_CONFIG = "invalid_config"
    STORAGE_REFUSED = "storage_refused"
    STORAGE_AWAY = "storage_away"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    STALLED = "stalled"
    POISONED_DEVICE = "poisoned_device"
    CRASHED = "crashed"
    SUPERVISOR_LOST = "supervisor_lost"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    PEER_LOST = "peer_lost"
    RENDEZVOUS_FAILED = "rendezvous_failed"
    LEASE_LOST = "lease_lost"
    NEVER_STARTED = "never_started"
    UNSCHEDULABLE = "unschedulable"
    CANCELLED = "cancelled"


class Budget(StrEnum):
    """Who pays for an ending."""

    NONE = "none"
    APPLICATION = "application"
    INFRASTRUCTURE = "infrastructure"


class Cost(NamedTuple):
    """What an ending means for the job.

    Attributes:
        budget: charged once for each such ending.
        may_retry: False where another attempt would surely end the same way, or nobody wants one.
        self_inflicted: the process may have done it to itself, so a crash loop is possible.
        advice: what a person does about it.
    """

    budget: Budget
    may_retry: bool
    self_inflicted: bool
    advice: str


_READ_LOG = "read the end of the log"

COSTS: Mapping[Ending, Cost] = MappingProxyType(
    {
        Ending.SUCCEEDED: Cost(Budget.NONE, False, False, "nothing to do"),
        Ending.UNPUBLISHED: Cost(Budget.APPLICATION, True, True, "the program must return its stats and not exit by itself"),
        Ending.APPLICATION_ERROR: Cost(Budget.APPLICATION, True, True, _READ_LOG),
        Ending.INVALID_CONFIG: Cost(Budget.APPLICATION, False, True, "correct the config of this asset in the profile"),
        # A full or read-only disk stays so until a person acts; a hundred more attempts would hide that.
        Ending.STORAGE_REFUSED: Cost(Budget.APPLICATION, True, False, "free space or correct the permissions, then run it again"),
        Ending.STORAGE_AWAY: Cost(Budget.INFRASTRUCTURE, True, False, "look at the object store and the network"),
        Ending.OUT_OF_MEMORY: Cost(Budget.APPLICATION, True, True, "raise the job's memory or lower the program's memory knobs"),
        Ending.TIMED_OUT: Cost(Budget.APPLICATION, True, True, "raise timeouts.wall_s"),
        Ending.STALLED: Cost(
            Budget.INFRASTRUCTURE, True, True, "look at the stacks in the log; if it was only slow, raise timeouts.step_s"
        ),
        Ending.POISONED_DEVICE: Cost(Budget.INFRASTRUCTURE, True, True, "check the device's health"),
        Ending.CRASHED: Cost(Budget.INFRASTRUCTURE, True, True, _READ_LOG),
        Ending.SUPERVISOR_LOST: Cost(Budget.INFRASTRUCTURE, True, False, "look who killed the job's supervisor"),
        Ending.PREEMPTED: Cost(Budget.INFRASTRUCTURE, True, False, "raise the job's band if this happens often"),
        Ending.NODE_LOST: Cost(Budget.INFRASTRUCTURE, True, False, "look at the node"),
        # A symptom: what its own rank or host shows is the loss of another.
        Ending.PEER_LOST: Cost(Budget.INFRASTRUCTURE, True, True, "look at the log of the rank or host that fell first"),
        Ending.RENDEZVOUS_FAILED: Cost(
            Budget.INFRASTRUCTURE, True, True, "look at rank 0's log, and whether the gang's hosts reach each other (SEAWAY_HOST_ADDRESS)"
        ),
        Ending.LEASE_LOST: Cost(Budget.NONE, True, False, "nothing to do: another attempt builds the same artifact"),
        Ending.NEVER_STARTED: Cost(Budget.NONE, True, False, "look at the engine: it took the job and didn't start it"),
        Ending.UNSCHEDULABLE: Cost(Budget.NONE, False, False, "ask for resources that this backend has"),
        Ending.CANCELLED: Cost(Budget.NONE, False, False, "nothing to do: someone cancelled it"),
    }
)

# 124, 125 and 0 are the contract; the rest follow sysexits.h and the shell, so that they read well in any engine's UI.
EXIT_CODES: Mapping[Ending, int] = MappingProxyType(
    {
        Ending.SUCCEEDED: 0,
        Ending.APPLICATION_ERROR: 1,
        Ending.RENDEZVOUS_FAILED: 68,
        Ending.STORAGE_AWAY: 69,
        Ending.UNPUBLISHED: 70,
        Ending.OUT_OF_MEMORY: 71,
        Ending.STORAGE_REFUSED: 74,
        Ending.LEASE_LOST: 75,
        Ending.PEER_LOST: 76,
        Ending.INVALID_CONFIG: 78,
        Ending.TIMED_OUT: 123,
        Ending.STALLED: 124,
        Ending.POISONED_DEVICE: 125,
        Ending.CANCELLED: 130,
        Ending.CRASHED: 134,
        Ending.PREEMPTED: 143,
    }
)
_BY_CODE = {code: ending for ending, code in EXIT_CODES.items()}


class PoisonedDeviceError(RuntimeError):
    """Raised by a program whose accelerator can't be used any more by this process; a fresh process may."""


def is_symptom(ending: Ending) -> bool:
    """Whether a rank or host that ends so has only felt the loss of another."""
    return ending is Ending.PEER_LOST


def severity(ending: Ending) -> tuple[bool, bool]:
    """A key that sorts the likely cause first, of ends that came together.

    An exception may be a program's answer to the loss of a peer; a kill, a stall or a lost node is never an answer.
    """
    return is_symptom(ending), COSTS[ending].budget is not Budget.INFRASTRUCTURE


def ending_of(returncode: int) -> Ending:
    """How a process ended, from its return code as `subprocess` gives it (negative: the signal that killed it)."""
    if returncode < 0:
        return Ending.CRASHED
    return _BY_CODE.get(returncode, Ending.APPLICATION_ERROR)


def describe(returncode: int) -> str:
    """The return code in words."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


class End(BaseModel):
    """The end of one attempt, as its supervisor (or the engine) saw it. Observations, never identity.

    Attributes:
        what: one sentence.
        tail: last lines of the traceback, if the program raised.
        steps: completed steps that the supervisor heard of; in a gang, those of the rank that made the fewest.
        saved: committed checkpoints that it heard of; what follows an infrastructure loss goes on from the last one.
        observations: `wall_s`, `cpu_s`, `max_rss_bytes` of the process and of the children it waited for; in a gang the
            longest, the sum and the largest over its ranks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ending: Ending
    what: str
    tail: tuple[str, ...] = ()
    steps: int = 0
    saved: int = 0
    observations: dict[str, float] = {}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> "End":
        return cls.model_validate(record)
