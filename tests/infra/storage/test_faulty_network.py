"""Publication over a network that loses replies, resets, refuses and truncates: right or refused, never wrong."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from infra.artifacts.artifact import Artifact
from infra.artifacts.lease import LeaseHeld, LeaseLost
from infra.artifacts.store import ArtifactStore
from infra.storage import errors, upload
from infra.storage.errors import StorageError
from infra.storage.objects import create_exclusive, read_or_none
from tests.infra.artifacts.builders import RECIPE, begin, publish
from tests.infra.storage.fault_proxy import FAULTS, Plan, fault_proxy
from tests.infra.storage.seaweed import Seaweed, pointed_at, s3_environment

pytestmark = [pytest.mark.s3, pytest.mark.faults]
PART = 5 * 1024 * 1024


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", PART)
    monkeypatch.setattr(errors, "FIRST_WAIT_S", 0.01)


@pytest.fixture
def plan(request: pytest.FixtureRequest) -> Plan:
    return Plan(*request.param)


@pytest.fixture
def root(seaweed_server: Seaweed, plan: Plan) -> Iterator[str]:
    """A root on SeaweedFS as seen through the proxy."""
    with fault_proxy(seaweed_server.endpoint, plan) as endpoint, pointed_at(s3_environment(endpoint)):
        yield seaweed_server.fresh_root()


def files(seed: int) -> dict[str, bytes]:
    rng = random.Random(seed)
    return {"large.bin": rng.randbytes(2 * PART + 11), "small.bin": rng.randbytes(1000), "empty.bin": b""}


def seen_directly(server: Seaweed, store: ArtifactStore, address: str) -> Artifact | None:
    """What a reader on a sound network finds, verified."""
    with pointed_at(server.environment):
        found = store.open_at(address)
        if found is not None:
            store.verify(found)
        return found


@pytest.mark.parametrize("plan", [(seed, 0.12) for seed in range(2)], indirect=True, ids=lambda seeded: f"seed {seeded[0]}")
def test_publication_ends_in_the_artifact_or_in_a_typed_error(seaweed_server: Seaweed, root: str, plan: Plan) -> None:
    store = ArtifactStore(root)
    sentences = []
    for partition in range(4):
        address = store.address("normalized", str(partition), RECIPE)
        try:
            artifact = publish(store, address, *begin(store, address, files(partition)))
        except StorageError as error:
            sentences.append(str(error))
            seen_directly(seaweed_server, store, address)  # whole, where a create went through whose reply never came; or not there
        else:
            assert seen_directly(seaweed_server, store, address) == artifact
    assert sum(plan.happened.values()) >= 4, plan.happened
    assert len(sentences) <= 1, "most faults pass, so most publications end well"
    assert all("s3://" in sentence and "\n" not in sentence for sentence in sentences)


@pytest.mark.parametrize("plan", [(11, 0.3, (fault,)) for fault in FAULTS], indirect=True, ids=lambda seeded: seeded[2][0])
def test_one_kind_of_fault_after_the_other_is_survived(seaweed_server: Seaweed, root: str, plan: Plan) -> None:
    store = ArtifactStore(root)
    address = store.address("normalized", "web", RECIPE)
    artifact = publish(store, address, *begin(store, address, files(1)))
    assert seen_directly(seaweed_server, store, address) == artifact
    for name, content in files(1).items():
        with artifact.open(name) as stream:
            assert stream.read(len(content) // 2) + stream.read() == content
    assert sum(plan.happened.values()) > 0


@pytest.mark.parametrize("plan", [(5, 0.15)], indirect=True, ids=["seed 5"])
def test_of_many_racers_over_a_faulty_network_one_wins_and_nobody_is_told_a_lie(root: str, plan: Plan) -> None:
    racers = 16
    for number in range(4):
        start, url = Barrier(racers), f"{root}/race-{number}"

        def race(index: int, start: Barrier = start, url: str = url) -> bool | None:
            start.wait()
            try:
                return create_exclusive(url, f"writer {index}".encode())
            except StorageError:
                return None

        with ThreadPoolExecutor(racers) as pool:
            won = list(pool.map(race, range(racers)))
        assert won.count(True) <= 1
        stored = read_or_none(url)
        assert stored is not None
        if True in won:
            assert stored == f"writer {won.index(True)}".encode()
        else:
            assert won[int(stored.split()[1])] is None, "the winner may not have heard of it, but must not believe that it lost"
    assert sum(plan.happened.values()) > 5


@pytest.mark.parametrize("plan", [(3, 0.1)], indirect=True, ids=["seed 3"])
def test_dispatchers_that_race_over_a_faulty_network_agree(seaweed_server: Seaweed, root: str, plan: Plan) -> None:
    store = ArtifactStore(root)
    address = store.address("normalized", "web", RECIPE)
    start = Barrier(6)

    def race(_: int) -> Artifact | None:
        start.wait()
        try:
            return publish(store, address, *begin(store, address))
        except (LeaseHeld, LeaseLost, StorageError):
            return None

    with ThreadPoolExecutor(6) as pool:
        results = [result for result in pool.map(race, range(6)) if result is not None]
    winner = seen_directly(seaweed_server, store, address)
    assert all(result == winner for result in results)
    assert sum(plan.happened.values()) > 3
