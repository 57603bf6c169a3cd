"""The seam to an engine: four verbs. Every backend keeps the same promises, and one suite of tests asks each for them."""

from dataclasses import dataclass
from typing import Literal, Protocol

from infra.dispatch.endings import End
from infra.dispatch.job import Attempt, Job

Phase = Literal["pending", "running", "ended"]


class EngineUnavailable(RuntimeError):  # noqa: N818 - a state of the world, answered by asking again
    """The engine did not answer. The job's fate is unknown: ask again, conclude nothing."""


class JobRejected(ValueError):  # noqa: N818
    """This backend can never run such a job. The message says what to ask for instead."""


@dataclass(frozen=True)
class Handle:
    """An attempt as the engine knows it. Anyone who knows job and attempt can make the same one."""

    job_id: str
    attempt: Attempt


@dataclass(frozen=True)
class EngineState:
    """What the engine says of an attempt. `end` is set exactly when the phase is `ended`."""

    phase: Phase
    end: End | None = None


class Backend(Protocol):
    """An engine that runs attempts."""

    @property
    def identity(self) -> str:
        """Which engine this is. Dispatchers with equal identities see the same jobs and may attach to them."""
        ...

    def submit_or_attach(self, job: Job, attempt: Attempt) -> Handle:
        """Start the attempt unless it was started before. Racing callers start it once; it outlives them all.

        Raises:
            JobRejected: such a job can never run here.
            EngineUnavailable: unknown whether it was started; call again.
        """
        ...

    def poll(self, handle: Handle) -> EngineState:
        """How it stands. `ended` means that no process of the attempt is left, and never changes again.

        Raises:
            EngineUnavailable: ask again.
        """
        ...

    def cancel(self, handle: Handle) -> bool:
        """End the attempt and wait for it: True once none of its processes is left, also if it never started."""
        ...

    def logs(self, handle: Handle, tail: int) -> str:
        """The last `tail` lines that the attempt printed."""
        ...

    def log_location(self, handle: Handle) -> str:
        """Where a person finds the whole log."""
        ...
