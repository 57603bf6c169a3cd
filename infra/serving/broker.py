"""Requests, leases and answers: a FIFO queue that outlives every worker. Pure but for its clock; one thread owns it.

A request is in exactly one place: waiting, leased, or settled (answered, a dead letter, or abandoned by its client).
A lease has an id of its own, and only the current lease of a request may answer it: a late answer - of a worker that
was slow, paused, or taken for dead - is counted and dropped. What comes back from a worker keeps its place in the queue.
"""

import heapq
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from infra.serving.limits import ServingLimits

Settled = Literal["answered", "dead_letter", "abandoned"]


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
    """

    id: str
    number: int
    body: Mapping[str, Any]
    lease: Lease | None = None
    said: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    settled: Settled | None = None
    answer: Mapping[str, Any] | None = None


@dataclass
class Counters:
    """What happened since the start. `submitted = waiting + leased + answered + dead_letters + abandoned`, always."""

    submitted: int = 0
    answered: int = 0
    dead_letters: int = 0
    abandoned: int = 0
    refused: int = 0
    late: int = 0
    expired: int = 0
    failed: int = 0


class Broker:
    """The queue.

    Args:
        clock: monotonic seconds.
        on_change: called with a request whenever it was settled or has new text; for whoever waits for it.
        on_waiting: called whenever a request is waiting that was not.
    """

    def __init__(
        self,
        limits: ServingLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[Request], None] = lambda request: None,
        on_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self.limits = limits
        self.counters = Counters()
        self._clock = clock
        self._on_change = on_change
        self._on_waiting = on_waiting
        self._numbers = itertools.count()
        self._open: dict[str, Request] = {}
        self._queue: list[tuple[int, str]] = []  # may name requests that are settled meanwhile
        self._leases: dict[str, Lease] = {}
        self._heard_s: dict[str, float] = {}

    @property
    def waiting(self) -> int:
        return len(self._open) - len(self._leases)

    @property
    def leased(self) -> int:
        return len(self._leases)

    def submit(self, body: Mapping[str, Any]) -> Request:
        """Put a request at the end of the queue.

        Raises:
            QueueFull: `limits.pending` requests are waiting.
        """
        self.tick()
        if self.waiting >= self.limits.pending:
            self.counters.refused += 1
            raise QueueFull(self.waiting, self.limits.retry_after_s)
        request = Request(uuid4().hex, next(self._numbers), body)
        self.counters.submitted += 1
        self._open[request.id] = request
        self._enqueue(request)
        return request

    def lease(self, worker: str) -> Lease | None:
        """The request that waits longest, for this worker; None if none waits."""
        self.hear(worker)
        self.tick()
        while self._queue:
            _, request_id = heapq.heappop(self._queue)
            request = self._open.get(request_id)
            if request is not None and request.lease is None:
                lease = Lease(uuid4().hex, request.id, request.body, worker, self._clock() + self.limits.lease_s)
                request.lease = self._leases[lease.id] = lease
                return lease
        return None

    def hear(self, worker: str) -> None:
        """The worker lives."""
        self._heard_s[worker] = self._clock()

    def say(self, lease_id: str, position: int, text: str) -> bool:
        """Add piece number `position` of the answer's text, for a client that listens; False if the lease is not current.

        Raises:
            Diverged: an earlier attempt said something else there. The request is a dead letter: its client has half of each.
        """
        request = self._request_of(lease_id)
        if request is None:
            return False
        if position < len(request.said):
            if request.said[position] != text:
                self._release(request, "it did not repeat what an earlier attempt had said")
                self._settle(request, "dead_letter")
                raise Diverged(f"request {request.id}: piece {position} was {request.said[position]!r} and is now {text!r}")
            return True
        request.said.append(text)
        self._on_change(request)
        return True

    def answer(self, lease_id: str, answer: Mapping[str, Any]) -> bool:
        """Settle the request; False, and nothing changes, if the lease is not current."""
        request = self._request_of(lease_id)
        if request is None:
            self.counters.late += 1
            return False
        self._leases.pop(lease_id)
        request.answer = answer
        self._settle(request, "answered")
        return True

    def fail(self, lease_id: str, why: str) -> bool:
        """The worker could not: the request goes to another one, or to the dead letters if enough have tried."""
        request = self._request_of(lease_id)
        if request is None:
            self.counters.late += 1
            return False
        self.counters.failed += 1
        self._give_back(request, why)
        return True

    def abandon(self, request: Request) -> None:
        """The client is gone: forget the request, whoever works on it."""
        if request.settled is None:
            if request.lease is not None:
                self._leases.pop(request.lease.id)
            self._settle(request, "abandoned")

    def leave(self, worker: str) -> None:
        """The worker is gone in good order: what it still had goes back without being held against the request."""
        for lease in [lease for lease in self._leases.values() if lease.worker == worker]:
            request = self._open[lease.request_id]
            self._release(request, None)
            self._enqueue(request)
        self._heard_s.pop(worker, None)

    def tick(self) -> None:
        """Take back what expired: leases whose time is up, and those of workers that fell silent."""
        now_s = self._clock()
        for lease in list(self._leases.values()):
            silent_s = now_s - self._heard_s.get(lease.worker, now_s)
            if now_s >= lease.expires_s:
                why = f"worker {lease.worker} did not answer in {self.limits.lease_s:g} s"
            elif silent_s >= self.limits.silence_s:
                why = f"worker {lease.worker} fell silent"
            else:
                continue
            self.counters.expired += 1
            self._give_back(self._open[lease.request_id], why)
        at_work = {lease.worker for lease in self._leases.values()}
        for worker, heard_s in list(self._heard_s.items()):
            if worker not in at_work and now_s - heard_s >= self.limits.silence_s:
                del self._heard_s[worker]  # it may come back and be heard again

    def next_deadline_s(self) -> float | None:
        """When `tick` next has something to do, as far as is known now."""
        silence_s = self.limits.silence_s
        deadlines = [min(lease.expires_s, self._heard_s.get(lease.worker, lease.expires_s) + silence_s) for lease in self._leases.values()]
        return min(deadlines, default=None)

    def _request_of(self, lease_id: str) -> Request | None:
        self.tick()
        lease = self._leases.get(lease_id)
        if lease is None:
            return None
        self.hear(lease.worker)
        return self._open[lease.request_id]

    def _give_back(self, request: Request, why: str) -> None:
        self._release(request, why)
        if len(request.failures) >= self.limits.attempts:
            self._settle(request, "dead_letter")
        else:
            self._enqueue(request)

    def _release(self, request: Request, why: str | None) -> None:
        assert request.lease is not None
        self._leases.pop(request.lease.id)
        request.lease = None
        if why is not None:
            request.failures.append(why)

    def _enqueue(self, request: Request) -> None:
        heapq.heappush(self._queue, (request.number, request.id))
        self._on_waiting()

    def _settle(self, request: Request, how: Settled) -> None:
        request.settled, request.lease = how, None
        self._open.pop(request.id)
        if how == "answered":
            self.counters.answered += 1
        elif how == "dead_letter":
            self.counters.dead_letters += 1
        else:
            self.counters.abandoned += 1
        self._on_change(request)
