"""Ten thousand requests, slow and poison ones among them, on workers of which one is killed every second."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from infra.serving.broker import Broker
from infra.serving.request import Lease, Request
from tests.infra.serving.clocked import Clock, brokered


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
