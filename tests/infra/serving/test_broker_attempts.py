"""Attempts: which failures count against a request, how the last one is made, and what a client hears of the second."""

import pytest

from infra.serving.request import Diverged
from tests.infra.serving.clocked import Clock, brokered


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


def test_a_declined_request_is_settled_with_its_reason():
    broker = brokered(Clock())
    request = broker.submit({})
    lease = broker.lease("w")
    assert lease is not None
    assert broker.decline(lease.id, {"error": "too long"})
    assert (request.settled, request.answer, broker.counters.declined) == ("declined", {"error": "too long"}, 1)
