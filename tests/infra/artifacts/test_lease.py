"""Leases: one holder per token, a higher token fences, and no two clocks are compared."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from infra.artifacts import lease as lease_module
from infra.artifacts.lease import AttemptRecord, Lease, LeaseHeld, LeaseLost, StalenessObserver, attempts, claim, newest_attempt, read_beat
from infra.storage.objects import read_or_none


@pytest.fixture
def address(storage: str) -> str:
    return f"{storage}/asset/_/0123456789abcdef"


def test_of_many_claimers_one_gets_the_attempt(address: str) -> None:
    start = Barrier(16)

    def race(index: int) -> Lease | None:
        start.wait()
        try:
            return claim(address, uid=f"{index:016x}", after=0)
        except LeaseHeld:
            return None

    with ThreadPoolExecutor(16) as pool:
        leases = [lease for lease in pool.map(race, range(16)) if lease]
    assert [(lease.token, lease.uid) for lease in leases] == [(record.token, record.uid) for record in attempts(address)]
    assert len(leases) == 1


def test_a_claim_says_who_holds_it(address: str) -> None:
    claim(address, uid="first", after=0, extra={"host": "node-7", "cores": 4})
    with pytest.raises(LeaseHeld, match="attempt 1 was claimed by first; attach to it"):
        claim(address, uid="second", after=0)
    assert attempts(address) == [AttemptRecord(token=1, uid="first", extra={"host": "node-7", "cores": 4})]


def test_a_repeated_claim_finds_its_own(address: str) -> None:
    assert claim(address, uid="first", after=0).token == claim(address, uid="first", after=0).token == 1


def test_a_claim_made_on_old_knowledge_is_refused(address: str) -> None:
    claim(address, uid="first", after=0)
    claim(address, uid="second", after=1)
    with pytest.raises(LeaseHeld):
        claim(address, uid="late", after=0)
    with pytest.raises(LeaseLost, match=r"attempt 1 \(first\) was fenced by attempt 2 \(second\)"):
        claim(address, uid="first", after=0)


def test_a_higher_token_fences_and_its_holder_stops_beating(address: str) -> None:
    first = claim(address, uid="first", after=0)
    first.beat()
    assert first.is_current()
    second = claim(address, uid="second", after=1)
    assert not first.is_current()
    assert second.is_current()
    with pytest.raises(LeaseLost, match="stop it, and publish nothing"):
        first.beat()


def test_a_claimer_that_dies_half_way_fences_nobody(address: str, tmp_path: Path) -> None:
    first = claim(address, uid="first", after=0)
    if address.startswith(str(tmp_path)):
        (Path(address) / ".attempts/000002").mkdir()
    assert first.is_current()
    assert claim(address, uid="second", after=1).token == 2


def test_the_job_reopens_the_lease_of_its_dispatcher(address: str) -> None:
    held = claim(address, uid="first", after=0)
    job = Lease.reopen(address, 1, "first")
    held.beat()
    before = read_beat(address, 1)
    job.beat()
    assert read_beat(address, 1) != before, "the first beat of another process must differ from that of its predecessor"
    with pytest.raises(LeaseLost, match="should belong to attempt second, but storage has attempt first"):
        Lease.reopen(address, 1, "second")
    with pytest.raises(LeaseLost, match="no claim"):
        Lease.reopen(address, 2, "second")
    claim(address, uid="second", after=1)
    with pytest.raises(LeaseLost, match="fenced by attempt 2"):
        Lease.reopen(address, 1, "first")


def test_the_first_end_of_an_attempt_stays(address: str) -> None:
    lease = claim(address, uid="first", after=0)
    elsewhere = Lease.reopen(address, 1, "first")
    assert lease.end("preempted", {"exit_code": 143})
    assert not elsewhere.end("succeeded")
    assert attempts(address) == [AttemptRecord(token=1, uid="first", ended="preempted", detail={"exit_code": 143})]


def test_an_attempt_that_was_taken_for_lost_before_it_started_never_starts(address: str) -> None:
    """Its dispatcher stood still between claim and submission; its capacity has been given away."""
    claim(address, uid="first", after=0).end("never_started")
    with pytest.raises(LeaseLost, match=r"attempt 1 \(first\) ended as never_started before it started"):
        Lease.reopen(address, 1, "first")


def test_attempts_that_ended_are_read_once_and_earlier_ones_not_at_all(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert newest_attempt(address) is None
    for token in range(1, 5):
        lease = claim(address, uid=f"attempt {token}", after=token - 1)
        if token < 4:
            lease.end("preempted")
    ended = {record.token: record for record in attempts(address) if record.ended}
    assert list(ended) == [1, 2, 3]
    read: list[str] = []

    def noting(url: str) -> bytes | None:
        read.append(url.removeprefix(f"{address}/.attempts/"))
        return read_or_none(url)

    monkeypatch.setattr(lease_module, "read_or_none", noting)
    assert [record.token for record in attempts(address, after=1, known=ended)] == [2, 3, 4]
    assert read == ["000004/claim.json", "000004/end.json"]
    read.clear()
    newest = newest_attempt(address)
    assert newest is not None
    assert (newest.token, read) == (4, ["000004/claim.json", "000004/end.json"])


def test_staleness_is_how_long_a_beat_did_not_change_on_the_observers_clock(address: str) -> None:
    clock = iter([100.0, 105.0, 130.0, 131.0, 141.0])
    observer = StalenessObserver(clock=lambda: next(clock))
    lease = claim(address, uid="first", after=0)
    (record,) = attempts(address)
    assert observer.observe(record, read_beat(address, 1)) == 0  # 100: never seen before, whatever its age
    assert observer.observe(record, read_beat(address, 1)) == 5  # 105: still no beat
    lease.beat()
    assert observer.observe(record, read_beat(address, 1)) == 0  # 130: a new beat, though 25 s passed
    assert observer.observe(record, read_beat(address, 1)) == 1  # 131
    assert observer.observe(record, read_beat(address, 1)) == 11  # 141


def test_each_attempt_is_observed_for_itself(address: str) -> None:
    clock = iter([0.0, 50.0, 60.0])
    observer = StalenessObserver(clock=lambda: next(clock))
    first, second = AttemptRecord(token=1, uid="first"), AttemptRecord(token=2, uid="second")
    observer.observe(first, None)
    assert observer.observe(second, None) == 0
    assert observer.observe(first, None) == 60
