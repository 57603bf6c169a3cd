"""How a call of the dispatcher ends: an artifact, or one of three exceptions that say what to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from infra.artifacts.artifact import Artifact
from infra.dispatch.endings import COSTS, End, Ending
from infra.dispatch.job import Job


@dataclass(frozen=True)
class Outcome:
    """An artifact, and how it was come by.

    Attributes:
        how: `reused` (it was published), `attached` (somebody else's attempt built it), `built` (ours did).
        attempts: attempts that this call followed; 0 if it was reused.
        seconds: that this call took.
        observations: of the attempt that published (`wall_s`, `cpu_s`, `max_rss_bytes`); empty if it was reused.
    """

    artifact: Artifact
    how: Literal["reused", "attached", "built"]
    attempts: int
    seconds: float
    observations: Mapping[str, float] = field(default_factory=dict)


class JobFailed(RuntimeError):  # noqa: N818
    """The budgets are spent, or no attempt could succeed.

    Attributes:
        what: one sentence about the last attempt's end.
        log: where its log lies.
        todo: what a person does about it.
        tail: last lines of the program's traceback, if it raised.
    """

    def __init__(self, job: Job, end: End, *, why: str, log: str) -> None:
        self.asset = job.asset
        self.partition = job.partition
        self.ending: Ending = end.ending
        self.what = end.what
        self.log = log
        self.todo = COSTS[end.ending].advice
        self.tail = end.tail
        kind = end.ending.value.replace("_", " ")
        super().__init__(f"{job.title} failed ({kind}): {end.what}; given up because {why}; log: {log}; to do: {self.todo}")


class JobCancelled(RuntimeError):  # noqa: N818
    """Somebody cancelled the job, and the engine confirmed that nothing of it runs."""

    def __init__(self, job: Job, *, confirmed: bool = True) -> None:
        self.asset = job.asset
        self.partition = job.partition
        self.confirmed = confirmed
        end = "nothing of it runs any more" if confirmed else "but the engine did not confirm its end; look there"
        super().__init__(f"{job.title} was cancelled; {end}")


class JobDetached(RuntimeError):  # noqa: N818
    """This dispatcher let go; the job runs on, and the next call attaches to it."""

    def __init__(self, job: Job, job_id: str) -> None:
        self.asset = job.asset
        self.partition = job.partition
        super().__init__(f"{job.title} runs on as {job_id}; run it again to attach")
