import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pydantic import ValidationError

from infra.serving.broker import Broker
from infra.serving.limits import ServingLimits
from infra.serving.request import Diverged, Lease, QueueFull, Request


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def brokered(clock: Clock, **limits: float) -> Broker:
    return Broker(ServingLimits(**{"engine_s": 5, "lease_s": 8, "request_s": 60, "poll_s": 1, "silence_s": 3, **limits}), clock=clock)


def test_requests_are_leased_in_the_order_of_their_arrival():
    broker = brokered(Clock())
    sent = [broker.submit({"n": n}).id for n in range(5)]
    leased = [broker.lease("w") for _ in range(6)]
    assert [lease.request_id for lease in leased if lease] == sent
    assert leased[-1] is None


def test_a_late_answer_is_dropped_and_the_next_workers_stands():
    clock = Clock()
    broker = brokered(clock)
    request = broker.submit({})
    slow = broker.lease("slow")
    clock.now_s = 8.0
    quick = broker.lease("quick")
    assert slow is not None
    assert quick is not None
    assert not broker.answer(slow.id, {"text": "late"})
    assert broker.answer(quick.id, {"text": "in time"})
    assert not broker.answer(quick.id, {"text": "twice"})
    assert request.answer == {"text": "in time"}
    assert (broker.counters.late, broker.counters.expired) == (2, 1)


def test_a_silent_worker_loses_its_requests_long_before_their_leases_end():
    clock = Clock()
    broker = brokered(clock)
    request = broker.submit({})
    broker.lease("dies")
    clock.now_s = 3.0
    again = broker.lease("lives")
    assert again is not None
    assert again.request_id == request.id
    assert request.failures == ["worker dies fell silent"]


def test_what_comes_back_keeps_its_place():
    broker = brokered(Clock())
    first, second = broker.submit({}), broker.submit({})
    lease = broker.lease("w")
    assert lease is not None
    broker.fail(lease.id, "engine crashed")
    order = [broker.lease("w"), broker.lease("w")]
    assert [found.request_id for found in order if found] == [first.id, second.id]


def test_a_poison_request_is_a_dead_letter_with_its_reasons():
    broker = brokered(Clock(), attempts=2)
    request = broker.submit({})
    for number in range(2):
        lease = broker.lease("w")
        assert lease is not None
        broker.fail(lease.id, f"crash {number}")
    assert request.settled == "dead_letter"
    assert request.failures == ["crash 0", "crash 1"]
    assert broker.lease("w") is None


def test_a_full_queue_says_when_to_come_back():
    broker = brokered(Clock(), pending=2)
    broker.submit({})
    broker.submit({})
    with pytest.raises(QueueFull, match="come back in 5 s"):
        broker.submit({})
    broker.lease("w")
    broker.submit({})


def test_an_abandoned_request_is_never_leased_and_its_answer_is_late():
    broker = brokered(Clock())
    waiting, leased = broker.submit({}), broker.submit({})
    broker.abandon(waiting)
    lease = broker.lease("w")
    assert lease is not None
    assert lease.request_id == leased.id
    broker.abandon(leased)
    assert not broker.answer(lease.id, {})
    assert (broker.waiting, broker.leased) == (0, 0)


def test_leaving_is_not_held_against_a_request():
    broker = brokered(Clock(), attempts=1)
    request = broker.submit({})
    broker.lease("leaves")
    broker.leave("leaves")
    assert request.failures == []
    assert broker.lease("stays") is not None


def test_the_last_attempt_of_a_request_has_a_worker_to_itself():
    clock = Clock()
    broker = brokered(clock, attempts=2)
    innocent, poison, later = (broker.submit({"n": n}) for n in range(3))
    for _ in range(2):
        assert broker.lease("dies") is not None
    broker.lost("dies")
    assert innocent.failures == poison.failures == ["worker dies ended"]
    alone = broker.lease("w")
    assert alone is not None
    assert alone.request_id == innocent.id
    assert broker.lease("w") is None, "nothing beside it"
    assert broker.answer(alone.id, {})
    again = broker.lease("w")
    assert again is not None
    assert again.request_id == poison.id
    broker.lost("w")
    assert poison.settled == "dead_letter"
    assert (innocent.settled, later.settled) == ("answered", None)


def test_a_worker_that_is_busy_empties_itself_for_a_last_attempt_and_the_others_go_on():
    broker = brokered(Clock(), attempts=2)
    busy = [broker.submit({}) for _ in range(2)]
    held = [broker.lease(name) for name in ("a", "b")]
    suspect = broker.submit({})
    lease = broker.lease("a")
    assert lease is not None
    broker.fail(lease.id, "crash")
    rest = [broker.submit({}) for _ in range(2)]
    assert broker.lease("a") is None, "it keeps itself free"
    beside = broker.lease("b")
    assert beside is not None
    assert beside.request_id == rest[0].id
    assert held[0] is not None
    assert held[0].request_id == busy[0].id
    broker.answer(held[0].id, {})
    alone = broker.lease("a")
    assert alone is not None
    assert alone.request_id == suspect.id


def test_a_worker_hears_which_of_its_requests_nobody_waits_for():
    broker = brokered(Clock())
    gone, wanted = broker.submit({}), broker.submit({})
    leases = [lease.id for _ in range(2) if (lease := broker.lease("w"))]
    broker.abandon(gone)
    assert broker.hear("w", leases) == [leases[0]]
    assert wanted.settled is None


def test_a_declined_request_is_settled_with_its_reason():
    broker = brokered(Clock())
    request = broker.submit({})
    lease = broker.lease("w")
    assert lease is not None
    assert broker.decline(lease.id, {"error": "too long"})
    assert (request.settled, request.answer, broker.counters.declined) == ("declined", {"error": "too long"}, 1)


def test_a_second_attempt_repeats_what_the_client_has_and_goes_on():
    clock = Clock()
    broker = brokered(clock)
    request = broker.submit({})
    first = broker.lease("dies")
    assert first is not None
    broker.say(first.id, 0, ["the "])
    clock.now_s = 4.0
    second = broker.lease("lives")
    assert second is not None
    assert not broker.say(first.id, 1, ["late"])
    assert broker.say(second.id, 0, ["the ", "tide"])
    assert broker.say(second.id, 2, [" comes"])
    assert request.said == ["the ", "tide", " comes"]


def test_an_attempt_that_says_something_else_ends_the_request():
    clock = Clock()
    broker = brokered(clock)
    request = broker.submit({})
    first = broker.lease("dies")
    assert first is not None
    broker.say(first.id, 0, ["the "])
    clock.now_s = 4.0
    second = broker.lease("lives")
    assert second is not None
    with pytest.raises(Diverged, match="was 'the ' and is now 'a '"):
        broker.say(second.id, 0, ["a "])
    assert request.settled == "dead_letter"


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"engine_s": 10, "lease_s": 10}, "engine_s = 10 must be less than lease_s = 10"),
        ({"lease_s": 9000, "request_s": 8000}, "lease_s = 9000 must be less than request_s = 8000"),
        ({"poll_s": 2, "silence_s": 4}, "silence_s = 4 must be more than twice poll_s = 2"),
    ],
)
def test_clocks_out_of_order_are_refused_before_anything_starts(limits: dict[str, float], sentence: str):
    with pytest.raises(ValidationError, match=sentence):
        ServingLimits(**limits)


@dataclass
class Worker:
    """A worker with slots: its leases, and when each will be done."""

    name: str
    leases: dict[str, tuple[Lease, float]] = field(default_factory=dict)


@dataclass
class Fleet:
    """Workers that are slow, crash, and are killed every second, around one broker and one clock."""

    broker: Broker
    clock: Clock
    random: random.Random
    slots: int
    workers: list[Worker] = field(default_factory=list)
    born: int = 0
    idle_while_waiting_s: float = 0.0

    def step(self, seconds: float) -> None:
        self.clock.now_s += seconds
        while len(self.workers) < 8:
            self.born += 1
            self.workers.append(Worker(f"w{self.born}"))
        if self.random.random() < seconds:  # one is killed every second, seen by its pool or not
            killed = self.workers.pop(self.random.randrange(len(self.workers)))
            if self.random.random() < 0.5:
                self.broker.lost(killed.name)
        self.broker.tick()
        waiting_before = self.broker.waiting
        for worker in self.workers:
            self.broker.hear(worker.name)
            for lease, done_s in list(worker.leases.values()):
                if worker.leases and self.clock.now_s >= done_s:
                    self._finish(worker, lease)
            while len(worker.leases) < self.slots and (found := self.broker.lease(worker.name)) is not None:
                seconds_left = 20.0 if found.body["slow"] else self.random.uniform(0, 0.5)
                worker.leases[found.id] = found, self.clock.now_s + seconds_left
        idle = any(not worker.leases for worker in self.workers)
        self.idle_while_waiting_s = self.idle_while_waiting_s + seconds if waiting_before and self.broker.waiting and idle else 0.0
        assert self.idle_while_waiting_s <= 2.0

    def _finish(self, worker: Worker, lease: Lease) -> None:
        if lease.id not in worker.leases:
            return
        if lease.body["poison"]:  # it takes the worker down, with everything that it has
            self.broker.lost(worker.name)
            worker.leases.clear()
        else:
            del worker.leases[lease.id]
            self.broker.answer(lease.id, {"n": lease.body["n"]})


@pytest.mark.parametrize(("seed", "slots"), [(0, 1), (1, 1), (2, 4)])
def test_ten_thousand_requests_get_one_answer_or_one_dead_letter_each(seed: int, slots: int):
    clock, draw = Clock(), random.Random(seed)
    broker = brokered(clock, attempts=4)
    settled: Counter[str] = Counter()
    broker._on_change = lambda request: settled.update([request.id])
    fleet, requests = Fleet(broker, clock, draw, slots), list[Request]()
    while len(requests) < 10_000 or broker.waiting or broker.leased:
        while len(requests) < 10_000 and broker.waiting < broker.limits.pending:
            body = {"n": len(requests), "slow": draw.random() < 0.002, "poison": draw.random() < 0.002}
            requests.append(broker.submit(body))
        fleet.step(0.05)
        assert clock.now_s < 10_000, "the queue drains"
    assert all(settled[request.id] == 1 for request in requests)
    for request in requests:
        if request.settled == "answered":
            assert request.answer == {"n": request.body["n"]}
        else:
            assert request.settled == "dead_letter"
            assert len(request.failures) == 4
    assert all(request.settled == "dead_letter" for request in requests if request.body["poison"] or request.body["slow"])
    counters = broker.counters
    assert counters.submitted == counters.answered + counters.dead_letters == 10_000
    dead = [request for request in requests if request.settled == "dead_letter"]
    innocent = [request for request in dead if not (request.body["poison"] or request.body["slow"])]
    assert len(innocent) <= 2, "their last attempt was alone, and its worker was killed from outside"


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
