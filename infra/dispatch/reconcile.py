"""Sweeping for orphans: attempts that storage and the engine see differently, and that no dispatcher follows any more.

A dispatcher that dies leaves its job to whoever runs it next. If nobody does, an attempt may stay without an end, or
run on though it was cancelled or fenced. `survey` looks, `reconcile` decides, `carry_out` acts; each may be repeated,
and dispatchers may do the same things meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from infra.artifacts.lease import AttemptRecord, Lease, StalenessObserver, attempts, read_beat
from infra.dispatch.backend import Backend, EngineState, EngineUnavailable, Handle
from infra.dispatch.endings import End, Ending
from infra.dispatch.job import Attempt, is_cancelled, mark_cancelled
from infra.dispatch.states import may_be_at_work


@dataclass(frozen=True)
class Sighting:
    """One attempt of this engine, as storage and the engine see it at one time.

    Attributes:
        is_newest: no later attempt exists at its address.
        is_cancelled: somebody marked it.
        is_wanted: somebody still wants what it builds; False once its run was cancelled.
        silent_s: how long its beat has not changed, as this observer saw it.
        engine: what the engine says, or None if it did not answer.
    """

    address: str
    record: AttemptRecord
    is_newest: bool
    is_cancelled: bool
    is_wanted: bool
    silent_s: float
    engine: EngineState | None

    @property
    def handle(self) -> Handle:
        return handle_of(self.record)


@dataclass(frozen=True)
class Cancel:
    """End it at the engine and record that. `why` completes the sentence 'cancelled because ...'."""

    address: str
    handle: Handle
    why: str


@dataclass(frozen=True)
class RecordEnd:
    """Write beside the lease how it ended: nobody did."""

    address: str
    handle: Handle
    end: End


Action = Cancel | RecordEnd


def reconcile(sightings: Iterable[Sighting], *, stale_s: float) -> tuple[Action, ...]:
    """What to do so that storage and the engine agree again. Nothing for an attempt that goes on and is wanted.

    Args:
        stale_s: how long an attempt that the engine does not know must be silent before it counts as never started:
            its dispatcher may be between claiming it and submitting it.
    """
    return tuple(action for sighting in sightings if (action := _action(sighting, stale_s)) is not None)


def _action(seen: Sighting, stale_s: float) -> Action | None:
    if seen.engine is None:
        return None
    if seen.engine.end is None:
        why = _why_to_cancel(seen)
        return None if why is None else Cancel(seen.address, seen.handle, why)
    end = seen.engine.end
    if seen.record.ended is not None or (end.ending is Ending.NEVER_STARTED and seen.silent_s < stale_s):
        return None
    if seen.is_cancelled and end.ending is not Ending.SUCCEEDED:
        end = end.model_copy(update={"ending": Ending.CANCELLED, "what": "it was cancelled"})
    return RecordEnd(seen.address, seen.handle, end)


def _why_to_cancel(seen: Sighting) -> str | None:
    if not seen.is_newest:
        return "a later attempt took over"
    if seen.record.ended is not None:
        return "it was taken for lost, and its place is free for the next attempt"
    if seen.is_cancelled:
        return "somebody asked for it and did not see it through"
    return None if seen.is_wanted else "its run was cancelled"


def survey(
    addresses: Iterable[str], backend: Backend, observer: StalenessObserver, *, is_wanted: Callable[[str], bool] = lambda address: True
) -> Iterator[Sighting]:
    """Look at every attempt of this engine that may still be at work. Lists each address once; polls what is unfinished.

    Args:
        observer: kept between surveys, for an attempt is stale only if somebody watched it being silent.
        is_wanted: asked of an address.

    Raises:
        TransientStorageError: come back later.
    """
    for address in addresses:
        records = attempts(address)
        for record in records:
            if may_be_at_work(record) and record.extra.get("backend") == backend.identity:
                yield Sighting(
                    address=address,
                    record=record,
                    is_newest=record is records[-1],
                    is_cancelled=is_cancelled(address, record.token),
                    is_wanted=is_wanted(address),
                    silent_s=observer.observe(record, read_beat(address, record.token)),
                    engine=_polled(backend, record),
                )


def carry_out(action: Action, backend: Backend) -> bool:
    """Do it; True once it is done, False if the engine has not confirmed the end yet (the next sweep comes back to it).

    Raises:
        EngineUnavailable, TransientStorageError: come back later.
    """
    match action:
        case Cancel(address, handle, why):
            mark_cancelled(address, handle.attempt.number)
            if not backend.cancel(handle):
                return False
            _record(address, handle, End(ending=Ending.CANCELLED, what=f"cancelled because {why}"))
        case RecordEnd(address, handle, end):
            _record(address, handle, end)
    return True


def handle_of(record: AttemptRecord) -> Handle:
    """The attempt as its engine knows it, from its claim alone."""
    return Handle(str(record.extra["job_id"]), Attempt(record.token, record.uid))


def _polled(backend: Backend, record: AttemptRecord) -> EngineState | None:
    try:
        return backend.poll(handle_of(record))
    except EngineUnavailable:
        return None


def _record(address: str, handle: Handle, end: End) -> None:
    detail: dict[str, Any] = end.model_dump(mode="json")
    Lease(address, handle.attempt.number, handle.attempt.uid).end(end.ending.value, detail)
