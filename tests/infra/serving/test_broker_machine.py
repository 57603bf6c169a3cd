"""Any order of what clients, workers and time do, against the broker's invariants."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from infra.serving.request import Lease, QueueFull, Request
from tests.infra.serving.clocked import Clock, brokered


class BrokerMachine(RuleBasedStateMachine):
    """Whatever clients, workers and time do, every request is in exactly one place and settled at most once."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.broker = brokered(self.clock, pending=6, attempts=2)
        self.settled: Counter[str] = Counter()
        self.broker._on_change = lambda request: self.settled.update([request.id] if request.settled else [])
        self.requests: list[Request] = []
        self.leases: list[Lease] = []

    @rule()
    def submit(self) -> None:
        full = self.broker.waiting >= 6
        try:
            self.requests.append(self.broker.submit({"n": len(self.requests)}))
        except QueueFull:
            assert full

    @rule(worker=st.sampled_from("abc"))
    def lease(self, worker: str) -> None:
        if (lease := self.broker.lease(worker)) is not None:
            self.leases.append(lease)

    @rule(which=st.integers(0, 30))
    def answer(self, which: int) -> None:
        if self.leases:
            lease = self.leases[which % len(self.leases)]
            accepted = self.broker.answer(lease.id, {"by": lease.id})
            request = next(request for request in self.requests if request.id == lease.request_id)
            assert not accepted or request.answer == {"by": lease.id}

    @rule(which=st.integers(0, 30))
    def fail(self, which: int) -> None:
        if self.leases:
            self.broker.fail(self.leases[which % len(self.leases)].id, "no")

    @rule(which=st.integers(0, 30))
    def abandon(self, which: int) -> None:
        if self.requests:
            self.broker.abandon(self.requests[which % len(self.requests)])

    @rule(worker=st.sampled_from("abc"))
    def lose(self, worker: str) -> None:
        self.broker.lost(worker)

    @rule(worker=st.sampled_from("abc"))
    def leave(self, worker: str) -> None:
        self.broker.leave(worker)

    @rule(seconds=st.sampled_from([0.5, 2.9, 3.0, 8.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.broker.tick()

    @invariant()
    def everything_is_in_one_place(self) -> None:
        counters = self.broker.counters
        assert counters.submitted == len(self.requests)
        settled = counters.answered + counters.dead_letters + counters.abandoned
        assert counters.submitted == self.broker.waiting + self.broker.leased + settled
        assert all(count == 1 for count in self.settled.values())
        assert sum(request.settled is not None for request in self.requests) == settled

    @invariant()
    def a_last_attempt_is_alone(self) -> None:
        for worker in "abc":
            mine = [request for request in self.requests if request.lease is not None and request.lease.worker == worker]
            assert len(mine) <= 1 or not any(request.failures for request in mine)

    @rule()
    def an_idle_worker_gets_what_waits(self) -> None:
        waiting = self.broker.waiting
        lease = self.broker.lease("idle")
        assert (lease is None) == (waiting == 0)
        if lease is not None:
            self.broker.answer(lease.id, {})

    @invariant()
    def the_next_deadline_is_never_late(self) -> None:
        deadline_s = self.broker.next_deadline_s()
        assert (deadline_s is None) == (self.broker.leased == 0)


BrokerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBroker = BrokerMachine.TestCase
