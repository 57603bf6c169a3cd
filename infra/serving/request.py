"""A request on its way through the broker, and the leases on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Settled = Literal["answered", "declined", "dead_letter", "abandoned"]


class QueueFull(RuntimeError):  # noqa: N818 - a state of the world, answered by coming back
    """As many requests wait as may. Come back after `retry_after_s`."""

    def __init__(self, pending: int, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"{pending} requests are waiting already; come back in {retry_after_s} s")


class Diverged(RuntimeError):  # noqa: N818
    """An attempt said something else than an earlier one whose words the client already has."""


@dataclass(frozen=True)
class Lease:
    """The right of one worker to answer one request, for a time."""

    id: str
    request_id: str
    body: Mapping[str, Any]
    worker: str
    expires_s: float


@dataclass
class Request:
    """One request from its arrival to its end.

    Attributes:
        number: its place in the queue, kept for life.
        said: pieces of text that the client may have seen; a later attempt must begin with the same.
        failures: one sentence per attempt that came to nothing.
        reserved_by: the worker that empties itself to try this request alone.
        answer: the engine's, or the error of a declined one.
    """

    id: str
    number: int
    body: Mapping[str, Any]
    lease: Lease | None = None
    said: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    reserved_by: str | None = None
    settled: Settled | None = None
    answer: Mapping[str, Any] | None = None


@dataclass
class Counters:
    """What happened since the start: `submitted = waiting + leased + answered + declined + dead_letters + abandoned`, always."""

    submitted: int = 0
    answered: int = 0
    declined: int = 0
    dead_letters: int = 0
    abandoned: int = 0
    refused: int = 0  # the queue was full
    late: int = 0
    expired: int = 0
    lost: int = 0
    failed: int = 0
