import errno
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.dispatch import rendezvous
from infra.dispatch.endings import Ending
from infra.dispatch.environment import SOURCES
from infra.dispatch.explanation import explain
from infra.dispatch.rendezvous import ENDPOINT_NAME, Membership, RendezvousFailed, hold_fresh_port

Calls = list[tuple[str, int, int]]


@pytest.fixture
def leader(tmp_path: Path) -> Membership:
    return Membership(rank=0, size=2, local_rank=0, local_size=2, directory=str(tmp_path / "000002"))


@pytest.fixture
def follower(leader: Membership) -> Membership:
    return replace(leader, rank=1, local_rank=1)


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    """The ports that a process holds for its life, given back after the test."""
    yield
    while rendezvous._HELD:
        rendezvous._HELD.pop().close()


def test_the_supervisor_tells_a_process_who_it_is():
    told = {"SEAWAY_RANK": "5", "SEAWAY_RANKS": "8", "SEAWAY_LOCAL_RANK": "1", "SEAWAY_LOCAL_RANKS": "4"}
    directory = {"SEAWAY_ATTEMPT_DIRECTORY": "s3://bucket/x/.attempts/000001", "SEAWAY_HOST_ADDRESS": "10.0.0.7"}
    assert Membership.of_environment({**told, **directory}) == Membership(5, 8, 1, 4, "s3://bucket/x/.attempts/000001", "10.0.0.7")
    assert Membership.of_environment({}) == Membership(0, 1, 0, 1, "")


def test_a_gang_of_one_meets_nobody():
    Membership.of_environment({}).join(lambda *call: pytest.fail(f"connected to {call}"))


def test_all_ranks_connect_to_the_address_that_rank_0_published_before_it_blocked(leader: Membership, follower: Membership):
    calls: Calls = []
    both = threading.Barrier(2, timeout=30)

    def connect(*call: object) -> None:
        calls.append(call)  # type: ignore[arg-type]
        both.wait()  # rank 0 is blocked until rank 1 has found it

    second = threading.Thread(target=follower.join, args=(connect,))
    second.start()
    leader.join(connect)
    second.join()
    (address,) = {call[0] for call in calls}
    assert sorted(call[1:] for call in calls) == [(2, 0), (2, 1)]
    assert address.startswith("127.0.0.1:")


def test_what_an_earlier_attempt_published_is_ignored(leader: Membership, follower: Membership, tmp_path: Path):
    stale = tmp_path / "000001" / ENDPOINT_NAME
    stale.parent.mkdir()
    stale.write_text("127.0.0.1:1")
    with pytest.raises(RendezvousFailed, match="found no coordinator"):
        follower.join(lambda *call: pytest.fail(f"connected to {call}"), patience_s=0.2)
    leader.join(lambda *call: None)
    found: list[str] = []
    follower.join(lambda address, size, rank: found.append(address))
    assert found[0] != "127.0.0.1:1"


def test_a_coordinator_that_does_not_come_is_an_infrastructure_loss_after_the_patience(follower: Membership):
    started_s = time.monotonic()
    with pytest.raises(RendezvousFailed, match=r"rank 1 found no coordinator at .* within 0\.3 s") as failed:
        follower.join(lambda *call: None, patience_s=0.3)
    assert time.monotonic() - started_s >= 0.3
    assert explain(failed.value, ranks=2).ending == Ending.RENDEZVOUS_FAILED


def test_storage_that_is_away_is_asked_again(follower: Membership, leader: Membership, monkeypatch: pytest.MonkeyPatch):
    answers = [rendezvous.StorageError("no answer"), None, b"127.0.0.1:7"]

    def read(url: str) -> bytes | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(rendezvous, "read_or_none", read)
    found: list[str] = []
    follower.join(lambda address, size, rank: found.append(address))
    assert found == ["127.0.0.1:7"]


def test_a_port_that_a_stranger_took_between_pick_and_bind_is_not_billed_to_the_program(leader: Membership):
    def connect(address: str, size: int, rank: int) -> None:
        port = int(address.rpartition(":")[2])
        with socket.create_server(("127.0.0.1", port)), socket.socket() as mine:
            mine.bind(("127.0.0.1", port))

    with pytest.raises(RendezvousFailed, match=r"could not join at 127\.0\.0\.1:\d+: OSError") as failed:
        leader.join(connect)
    assert isinstance(failed.value.__cause__, OSError)
    assert failed.value.__cause__.errno == errno.EADDRINUSE
    assert explain(failed.value, ranks=2).ending == Ending.RENDEZVOUS_FAILED


def test_rank_0_started_twice_in_one_attempt_does_not_split_the_gang(leader: Membership):
    leader.join(lambda *call: None)
    with pytest.raises(RendezvousFailed, match="started twice"):
        leader.join(lambda *call: pytest.fail("a second coordinator"))


def test_two_gangs_never_choose_one_port_even_before_they_listen(monkeypatch: pytest.MonkeyPatch):
    first, held = hold_fresh_port()
    picks = [first, first]  # what the kernel may say twice, as nobody listens there yet

    class Picked(socket.socket):
        def bind(self, address: tuple[str, int]) -> None:
            is_probe = self.type == socket.SOCK_STREAM and address[1] == 0
            super().bind((address[0], picks.pop()) if is_probe and picks else address)

    monkeypatch.setattr(rendezvous.socket, "socket", Picked)
    with held:
        second, other = hold_fresh_port()
        other.close()
    assert picks == []
    assert second != first


def test_a_port_is_held_until_its_process_dies():
    code = "from infra.dispatch.rendezvous import hold_fresh_port; port, held = hold_fresh_port(); print(port, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], cwd=SOURCES, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        port = int(holder.stdout.readline())
        assert not can_hold(port)
        holder.kill()
        holder.wait()
    assert can_hold(port)


def can_hold(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        try:
            held.bind(("", port))
        except OSError:
            return False
        return True
