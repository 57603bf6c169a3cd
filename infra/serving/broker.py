"""Requests, leases and answers: a FIFO queue that outlives every worker. Pure but for its clock; one thread owns it.

A request is in exactly one place: waiting, leased, or settled (answered, declined, a dead letter, or abandoned by its client).
A lease has an id of its own, and only the current lease of a request may answer it: a late answer - of a worker that
was slow, paused, or taken for dead - is counted and dropped. What comes back from a worker keeps its place in the queue.

A worker may hold several leases. When it dies with all of them, nobody can say which request killed it; so the last attempt of a
request has a worker to itself, and nobody becomes a dead letter for what a neighbour did.
"""

import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from infra.serving.limits import ServingLimits
from infra.serving.request import Counters, Diverged, Lease, QueueFull, Request, Settled

SETTLED_COUNTERS: Mapping[Settled, str] = {
    "answered": "answered",
    "declined": "declined",
    "dead_letter": "dead_letters",
    "abandoned": "abandoned",
}


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
        """The request that waits longest and that this worker may have; None if there is none."""
        self.hear(worker)
        self.tick()
        mine = [lease for lease in self._leases.values() if lease.worker == worker]
        if any(self._wants_to_be_alone(self._open[lease.request_id]) for lease in mine):
            return None
        passed_over: list[tuple[int, str]] = []
        found: Lease | None = None
        while self._queue and found is None:
            place = heapq.heappop(self._queue)
            request = self._open.get(place[1])
            if request is None or request.lease is not None:
                continue
            if not self._wants_to_be_alone(request) or not mine:
                found = self._leased(request, worker)
                continue
            passed_over.append(place)
            if request.reserved_by not in self._heard_s:
                request.reserved_by = worker
            if request.reserved_by == worker:
                break  # this worker takes nothing more until it is empty
        for place in passed_over:
            heapq.heappush(self._queue, place)
        return found

    def hear(self, worker: str, leases: Iterable[str] = ()) -> list[str]:
        """The worker lives and works on these leases; those of them that nobody waits for any more."""
        self._heard_s[worker] = self._clock()
        return [lease for lease in leases if lease not in self._leases]

    def say(self, lease_id: str, position: int, pieces: Sequence[str]) -> bool:
        """Add pieces of the answer's text, for a client that listens; False if the lease is not current.

        Args:
            position: number of the first one.

        Raises:
            Diverged: an earlier attempt said something else there. The request is a dead letter: its client has half of each.
        """
        request = self._request_of(lease_id)
        if request is None:
            return False
        for number, text in enumerate(pieces, position):
            if number < len(request.said) and request.said[number] != text:
                self._release(request, "it did not repeat what an earlier attempt had said")
                self._settle(request, "dead_letter")
                raise Diverged(f"request {request.id}: piece {number} was {request.said[number]!r} and is now {text!r}")
        if new := pieces[max(0, len(request.said) - position) :]:
            request.said.extend(new)
            self._on_change(request)
        return True

    def answer(self, lease_id: str, answer: Mapping[str, Any]) -> bool:
        """Settle the request; False, and nothing changes, if the lease is not current."""
        return self._end(lease_id, answer, "answered")

    def decline(self, lease_id: str, error: Mapping[str, Any]) -> bool:
        """Settle the request as one that can't be answered by anybody, for a reason its client is told."""
        return self._end(lease_id, error, "declined")

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

    def lost(self, worker: str) -> None:
        """The worker is gone without a word, and somebody saw it end: no need to wait until it falls silent."""
        for lease in [lease for lease in self._leases.values() if lease.worker == worker]:
            self.counters.lost += 1
            self._give_back(self._open[lease.request_id], f"worker {worker} ended")
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

    def _wants_to_be_alone(self, request: Request) -> bool:
        return 0 < self.limits.attempts - 1 <= len(request.failures)

    def _leased(self, request: Request, worker: str) -> Lease:
        lease = Lease(uuid4().hex, request.id, request.body, worker, self._clock() + self.limits.lease_s)
        request.lease = self._leases[lease.id] = lease
        return lease

    def _end(self, lease_id: str, answer: Mapping[str, Any], how: Settled) -> bool:
        request = self._request_of(lease_id)
        if request is None:
            self.counters.late += 1
            return False
        self._leases.pop(lease_id)
        request.answer = answer
        self._settle(request, how)
        return True

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
        name = SETTLED_COUNTERS[how]
        setattr(self.counters, name, getattr(self.counters, name) + 1)
        self._on_change(request)
        if self._queue:
            self._on_waiting()  # a worker may be empty now that has to be for the next one
