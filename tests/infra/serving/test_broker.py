"""The queue: who is leased what, in which order, and which answers stand."""

import pytest
from pydantic import ValidationError

from infra.serving.limits import ServingLimits
from infra.serving.request import QueueFull
from tests.infra.serving.clocked import Clock, brokered


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


def test_a_worker_hears_which_of_its_requests_nobody_waits_for():
    broker = brokered(Clock())
    gone, wanted = broker.submit({}), broker.submit({})
    leases = [lease.id for _ in range(2) if (lease := broker.lease("w"))]
    broker.abandon(gone)
    assert broker.hear("w", leases) == [leases[0]]
    assert wanted.settled is None


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
