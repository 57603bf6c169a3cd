"""The two processes of a host: a supervisor and its rank. What a real one decides, it decides with the same functions."""

import signal
from contextlib import suppress

from infra.artifacts.lease import Lease, LeaseLost
from infra.artifacts.manifest import MANIFEST_NAME
from infra.artifacts.program import Stats
from infra.artifacts.provenance import Code, Environment, Provenance
from infra.dispatch import gang
from infra.dispatch.endings import EXIT_CODES, End, Ending
from infra.dispatch.explanation import explain
from infra.dispatch.job import is_cancelled
from infra.storage.errors import StorageError
from infra.storage.objects import read_or_none
from infra.supervise.pulse import Failure
from infra.supervise.verdict import Evidence, GangEvidence, RankEnd, Stop, gang_verdict, verdict
from tests.simulation.actors import Killed
from tests.simulation.engine import Host, Running, SimulatedEngine
from tests.simulation.history import Violation

BEAT_S = 10.0
STALLED_BEATS = 45  # longer than a pause
STORAGE_PATIENCE_S = 300.0
_ENVIRONMENT = Environment(user="nobody", host="nowhere", python="3", platform="simulated", packages={})
_PROVENANCE = Provenance(captured_at="2000-01-01T00:00:00Z", code=Code(), environment=_ENVIRONMENT, config={})


class CountStats(Stats):
    numbers: int


class ProgramError(Exception):
    """The program's own mistake."""


class PeerGoneError(Exception):
    """What a collective raises when a peer is gone: an answer to a loss, and it looks like the program's own mistake."""


def work(engine: SimulatedEngine, running: Running, host: Host) -> None:
    """The rank of one host: steps together with its peers; rank 0 publishes."""
    try:
        lease = Lease.reopen(running.job.address, running.attempt.number, running.attempt.uid)
        host.is_working = True
        engine.check()
        random, faults = engine.scheduler.random, engine.faults
        fails_at = random.randrange(faults.steps) if random.random() < faults.application_error else None
        for step in range(faults.steps):
            engine.scheduler.hand_over(BEAT_S)
            if step == fails_at:
                running.is_at_fault = True
                raise ProgramError("simulated")
            _meet_peers(engine, running, host)
            host.steps = step + 1
        if host.number == 0:
            _publish(engine, running, lease)
        host.returned = (0, None)
    except Violation:
        raise  # the simulation's word, not the program's
    except Exception as error:
        failure = explain(error)
        host.returned = (EXIT_CODES[Ending(failure.ending)], failure)
    finally:
        host.is_working = False


def _meet_peers(engine: SimulatedEngine, running: Running, host: Host) -> None:
    """One collective. A peer that is gone makes it fail, in one of several ways, or hang."""
    random = engine.scheduler.random
    while lost := [peer.number for peer in running.hosts if peer.worker.is_gone and not (peer.returned and peer.returned[0] == 0)]:
        what = random.choice(("raise", "abort", "hang"))
        if what == "raise":
            raise PeerGoneError(f"connection reset by host {lost[0]}")
        if what == "abort":
            host.returned = (-signal.SIGABRT, None)
            raise Killed
        engine.scheduler.hand_over(BEAT_S)


def _publish(engine: SimulatedEngine, running: Running, lease: Lease) -> None:
    job, store = running.job, engine.store
    if store.open_at(job.address) is not None:
        return
    store.clear(job.address, lease.uid)
    out = store.writer(job.address, lease.uid)
    out.write_json("numbers.json", [1, 2, 3])
    stats = CountStats(numbers=3)
    store.publish(job.address, out, recipe=job.recipe, payload=job.payload, stats=stats, lease=lease, provenance=_PROVENANCE)


def supervise(engine: SimulatedEngine, running: Running, host: Host) -> None:
    """The parent of the rank: beats the lease, watches the rank and its peers, records the end."""
    try:
        stop = _watch(engine, running, host)
        fell = _returned(host) if stop is None else None
        end = _judged(running, host, stop, fell, published=False)
        if len(running.hosts) > 1 and not (end.ending is Ending.SUCCEEDED or (end.ending is Ending.PEER_LOST and stop is not None)):
            with suppress(StorageError):
                gang.declare_fallen(running.directory, host.number, end)
        engine.scheduler.kill(host.worker)
        end = _judged(running, host, stop, fell, published=_is_published(engine, running))
        with suppress(StorageError):  # the dispatcher hears of it from the engine
            if len(running.hosts) == 1:
                Lease(running.job.address, running.attempt.number, running.attempt.uid).end(end.ending.value, end.model_dump(mode="json"))
            gang.record_end(running.directory, host.number, end)
    finally:
        engine.scheduler.kill(host.worker)  # the kernel does so when its parent dies


def _watch(engine: SimulatedEngine, running: Running, host: Host) -> Stop | None:
    """Why the rank must be ended; None if it ended by itself."""
    if _is_cancelled(running):
        return Stop(Ending.CANCELLED, "it was cancelled before it started")
    lease: Lease | None = None
    steps, silent = 0, 0
    while True:
        engine.scheduler.hand_over(BEAT_S)
        if host.worker.is_gone:
            return None
        if host.is_asked_to_stop:
            return Stop(Ending.CANCELLED if _is_cancelled(running) else Ending.PREEMPTED, "it was told to stop")
        steps, silent = host.steps, 0 if host.steps > steps else silent + 1
        if silent > STALLED_BEATS:
            return Stop(Ending.STALLED, "no step was completed")
        try:
            if host.number == 0:
                lease = lease or Lease.reopen(running.job.address, running.attempt.number, running.attempt.uid)
                lease.beat()
            if len(running.hosts) > 1:
                first = gang.read_end(running.directory, 0)
                if first is not None and first.ending is Ending.SUCCEEDED:
                    return None
                fallen = gang.read_fallen(running.directory)
                if host.worker.is_gone:
                    return None  # its own end comes first, however long storage took to tell of others
                if fallen is not None and fallen.host != host.number:
                    return Stop(Ending.PEER_LOST, f"host {fallen.host} fell first: {fallen.end.what}")
        except LeaseLost as lost:
            return Stop(Ending.LEASE_LOST, str(lost))
        except StorageError:
            continue  # storage that does not answer says nothing


def _returned(host: Host) -> RankEnd | None:
    """How the rank ended by itself; None while it goes on."""
    if not host.worker.is_gone:
        return None
    code, failure = host.returned or (-signal.SIGKILL, None)
    assert failure is None or isinstance(failure, Failure)
    return RankEnd(host.number, code, failure)


def _judged(running: Running, host: Host, stop: Stop | None, fell: RankEnd | None, *, published: bool) -> End:
    what_of = f"host {host.number} of {running.attempt.uid}"
    if len(running.hosts) > 1:
        ending, what, _ = gang_verdict(GangEvidence(published, (fell,) if fell else (), stop, has_rank_0=host.number == 0))
    else:
        code, failure = (fell.returncode, fell.failure) if fell else (-signal.SIGKILL, None)
        ending, what = verdict(Evidence(published, code, stop, failure))
    return End(ending=ending, what=f"{what_of}: {what}", steps=host.steps)


def _is_published(engine: SimulatedEngine, running: Running) -> bool:
    until_s = engine.scheduler.now_s + STORAGE_PATIENCE_S
    while True:
        try:
            return read_or_none(f"{running.job.address}/{MANIFEST_NAME}") is not None
        except StorageError:
            if engine.scheduler.now_s >= until_s:
                return False
            engine.scheduler.hand_over(1.0)


def _is_cancelled(running: Running) -> bool:
    try:
        return is_cancelled(running.job.address, running.attempt.number)
    except StorageError:
        return False
