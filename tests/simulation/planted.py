"""Bugs to plant, one at a time, into each kernel: what the simulation must find, and by which invariant."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest

from infra.artifacts import lease as leases
from infra.artifacts import store as stores
from infra.artifacts.lease import Lease, StalenessObserver
from infra.dispatch import budgets, capacity, dispatcher, gang, plan
from infra.dispatch.backend import Handle
from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.endings import COSTS, Budget, End, Ending
from infra.dispatch.job import Attempt, job_id, mark_cancelled
from infra.dispatch.plan import Attach, Claim, View
from infra.storage import s3
from infra.storage.errors import TransientStorageError
from infra.storage.filesystem import open_filesystem
from infra.storage.objects import read_or_none, replace
from tests.simulation.engine import Running, SimulatedEngine
from tests.simulation.invariants import INFRASTRUCTURE

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Bug:
    """A mutation, the invariants of which one must catch it, and the worlds in which it is looked for (`plans.TROUBLES`)."""

    plant: Plant
    found_by: Sequence[str]
    trouble: str = "any"


def _charges_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "decide", lambda history, limits: budgets.decide([end for end in history for _ in range(2)], limits))


def _charges_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "decide", lambda history, limits: budgets.decide(history[-1:], limits))


def _recost(ending: Ending, **changes: Any) -> Plant:
    costs = MappingProxyType({**COSTS, ending: COSTS[ending]._replace(**changes)})
    return lambda patch: patch.setattr(budgets, "COSTS", costs)


def _publishes_without_asking_the_fence(patch: pytest.MonkeyPatch) -> None:
    class Unfenced(Lease):
        def require_current(self) -> None:
            return None

    publish = stores.ArtifactStore.publish

    def careless(store: Any, address: str, out: Any, *, lease: Lease, **rest: Any) -> Any:
        return publish(store, address, out, lease=Unfenced(lease.address, lease.token, lease.uid), **rest)

    patch.setattr(stores.ArtifactStore, "publish", careless)


def _gives_a_token_twice(patch: pytest.MonkeyPatch) -> None:
    def claim(address: str, *, uid: str, after: int, extra: Any) -> Lease:
        token = max(1, after)
        replace(f"{address}/.attempts/{token:06d}/claim.json", leases.canonical_json({"token": token, "uid": uid, "extra": dict(extra)}))
        return Lease(address, token, uid)

    patch.setattr(dispatcher, "claim", claim)


def _starts_what_was_taken_for_lost(patch: pytest.MonkeyPatch) -> None:
    def reopen(address: str, token: int, uid: str) -> Lease:
        lease = Lease(address, token, uid)
        lease.require_current()
        return lease

    patch.setattr(Lease, "reopen", reopen)


def _judges_staleness_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    class ByWallClock(StalenessObserver):
        def __init__(self, clock: Callable[[], float]) -> None:
            import time

            super().__init__(lambda: time.time())

    patch.setattr(dispatcher, "StalenessObserver", ByWallClock)


def _overwrites(patch: pytest.MonkeyPatch) -> None:
    def create(url: str, data: bytes) -> bool:
        replace(url, data)
        return True

    patch.setattr(stores, "create_exclusive", create)


def _create(url: str, data: bytes, *, after_a_refusal: Callable[[bytes | None], bool]) -> bool:
    filesystem, path = open_filesystem(url)
    from infra.storage.errors import retried

    def attempt() -> bool:
        return s3.create(filesystem, path, data) or after_a_refusal(read_or_none(url))

    return retried("create", url, attempt)


def _reads_a_lost_reply_as_a_loss(patch: pytest.MonkeyPatch) -> None:
    def lost(stored: bytes | None) -> bool:
        if stored is None:
            raise TransientStorageError("conflict")
        return False

    for module in (stores, leases):
        patch.setattr(module, "create_exclusive", lambda url, data: _create(url, data, after_a_refusal=lost))


def _reads_409_as_412(patch: pytest.MonkeyPatch) -> None:
    for module in (stores, leases):
        patch.setattr(module, "create_exclusive", lambda url, data: _create(url, data, after_a_refusal=lambda stored: stored == data))


def _publishes_unverified(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stores, "_verify_files", lambda url, files: None)
    sent = "infra.storage.upload.S3Upload._sent"
    patch.setattr(sent, lambda self, operation, body, md5, **rest: bool(self._call(operation, Body=body, **rest)))


def _sweeps_before_publication(patch: pytest.MonkeyPatch) -> None:
    def sweep(store: Any, address: str) -> tuple[str, ...]:
        names = [name for name in stores.list_names(address) if name.startswith("attempt-")]
        for name in names:
            stores.remove_tree(f"{address}/{name}")
        return tuple(names)

    patch.setattr(stores.ArtifactStore, "sweep", sweep)


def _next_step(instead: Callable[[View, str], Any]) -> Plant:
    def next_step(view: View, *, backend: str, **rest: Any) -> Any:
        return instead(view, backend) or plan.next_step(view, backend=backend, **rest)

    return lambda patch: patch.setattr(dispatcher, "next_step", next_step)


def _attach_to_what_is_over(view: View, backend: str) -> Any:
    last = view.records[-1] if view.records else None
    is_over = last is not None and last.ended in INFRASTRUCTURE and last.extra.get("backend") == backend
    return Attach(Attempt(last.token, last.uid)) if last is not None and is_over else None


def _claim_beside_the_living(view: View, backend: str) -> Any:
    last = view.records[-1] if view.records else None
    elsewhere = last is not None and last.ended is None and last.extra.get("backend") != backend
    return Claim(after=last.token) if last is not None and elsewhere else None


def _gang_end(**changes: Any) -> Plant:
    def mutated(ends: Any, hosts: int, fallen: Any, engine: Any) -> End:
        return gang_end(**{**{"ends": ends, "hosts": hosts, "fallen": fallen, "engine": engine}, **changes})

    gang_end = gang.gang_end
    return lambda patch: patch.setattr(gang, "gang_end", mutated)


def _forgives_hosts_without_a_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gang, "_without_record", lambda ends, hosts: None)
    unknown = End(ending=Ending.APPLICATION_ERROR, what="no host said why")
    patch.setattr(gang, "_cause", lambda ends, fallen: fallen.end if fallen else next(iter(ends.values()), unknown))


def _blames_a_symptom(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gang, "severity", lambda ending: (ending is not Ending.APPLICATION_ERROR, False))


def _ends_with_its_first_host(patch: pytest.MonkeyPatch) -> None:
    def is_over(engine: SimulatedEngine, running: Running) -> bool:
        return not running.hosts or any(host.is_gone for host in running.hosts)

    patch.setattr(SimulatedEngine, "_is_over", is_over)


def _mixes_generations(patch: pytest.MonkeyPatch) -> None:
    """Reads the records of the first generation, whichever is asked for."""
    read_ends = gang.read_ends
    patch.setattr(gang, "read_ends", lambda directory, hosts: read_ends(directory.rpartition("/")[0] + "/000001", hosts))


def _keeps_what_was_cancelled(patch: pytest.MonkeyPatch) -> None:
    def cancel(dispatcher: Dispatcher, job: Any, attempt: Attempt) -> bool:
        dispatcher.patiently(lambda: mark_cancelled(job.address, attempt.number))
        return dispatcher.patiently(lambda: dispatcher.backend.cancel(Handle(job_id(job, attempt.number), attempt)))

    patch.setattr(Dispatcher, "cancel_attempt", cancel)


def _counts_the_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(capacity, "attempts", lambda address: [record.model_copy(update={"ended": None}) for record in leases.attempts(address)])


def _forgets_orphans(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tests.simulation.invariants.reconcile", lambda sightings, *, stale_s: ())
    patch.setattr("tests.simulation.world.reconcile", lambda sightings, *, stale_s: ())


LIVE, COMPLETE, WINNER = "at_most_one_live_attempt", "published_is_complete", "one_winner"
CHARGED, PREEMPTED, GENERATIONS = "every_budget_is_charged_once", "preemption_alone_never_fails", "no_mixed_generations"
IDLE, ANSWER = "idle_fleet_uses_nothing", "everybody_gets_an_answer"

BUGS: dict[str, Bug] = {
    "budgets: an end is charged twice": Bug(_charges_twice, [CHARGED, PREEMPTED]),
    "budgets: earlier ends are forgotten": Bug(_charges_nothing, [CHARGED]),
    "budgets: a preemption is charged to the application": Bug(_recost(Ending.PREEMPTED, budget=Budget.APPLICATION), [PREEMPTED]),
    "budgets: a lost node is never retried": Bug(_recost(Ending.NODE_LOST, may_retry=False), [PREEMPTED]),
    "budgets: an exception costs nothing": Bug(_recost(Ending.APPLICATION_ERROR, budget=Budget.NONE), [CHARGED, ANSWER]),
    "lease: publication does not ask the fence": Bug(_publishes_without_asking_the_fence, [WINNER], "zombies"),
    "lease: a token is given twice": Bug(_gives_a_token_twice, [LIVE]),
    "lease: an attempt whose end is recorded starts": Bug(_starts_what_was_taken_for_lost, [LIVE]),
    "lease: staleness is judged by a wall clock": Bug(_judges_staleness_by_the_wall_clock, [LIVE]),
    "publication: the manifest is written over": Bug(_overwrites, [WINNER]),
    "publication: a lost reply is read as a loss": Bug(_reads_a_lost_reply_as_a_loss, [WINNER]),
    "publication: 409 is read as 412": Bug(_reads_409_as_412, [PREEMPTED, CHARGED], "storage"),
    "publication: nothing is verified": Bug(_publishes_unverified, [COMPLETE], "storage"),
    "publication: the winner is swept": Bug(_sweeps_before_publication, [COMPLETE]),
    "plan: an attempt that is over is followed": Bug(_next_step(_attach_to_what_is_over), [ANSWER], "gangs"),
    "plan: an attempt is claimed beside a living one": Bug(_next_step(_claim_beside_the_living), [LIVE], "zombies"),
    "gang: hosts without a record are forgiven": Bug(_forgives_hosts_without_a_record, [PREEMPTED], "gangs"),
    "gang: the engine's word is not heard": Bug(_gang_end(engine=None), [PREEMPTED, CHARGED], "gangs"),
    "gang: a symptom is blamed": Bug(_blames_a_symptom, [PREEMPTED], "gangs"),
    "gang: it ends with its first host": Bug(_ends_with_its_first_host, [GENERATIONS], "gangs"),
    "gang: generations are mixed": Bug(_mixes_generations, [GENERATIONS], "gangs"),
    "capacity: a cancel gives nothing back": Bug(_keeps_what_was_cancelled, [IDLE]),
    "capacity: what has ended is counted": Bug(_counts_the_ended, [IDLE]),
    "reconcile: orphans are forgotten": Bug(_forgets_orphans, [IDLE]),
}
