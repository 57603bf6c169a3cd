"""What a dispatcher does next, as a pure function of what storage and this dispatcher know."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from infra.artifacts.lease import AttemptRecord
from infra.dispatch.budgets import Budgets, GiveUp, Retry, decide
from infra.dispatch.endings import End, Ending
from infra.dispatch.job import Attempt


@dataclass(frozen=True)
class Attach:
    """Follow this attempt, starting it at the engine if nobody has."""

    attempt: Attempt


@dataclass(frozen=True)
class Claim:
    """Take the attempt number after `after`, once `pause_s` have passed."""

    after: int
    pause_s: float = 0.0


@dataclass(frozen=True)
class Wait:
    """Another engine's attempt seems alive: look again later."""


@dataclass(frozen=True)
class Fence:
    """Another engine's attempt fell silent: record its loss, so that the next attempt may begin."""

    attempt: Attempt
    silent_s: float


Step = Attach | Claim | Wait | Fence | GiveUp


@dataclass(frozen=True)
class View:
    """What is known of an address that has no artifact yet.

    Attributes:
        records: every attempt after `since`, by number, and the one before them.
        since: attempts up to this number belong to earlier runs; their failures were reported to somebody then.
        silent_s: how long the last attempt's beat has not changed, as this dispatcher saw it.
    """

    records: Sequence[AttemptRecord]
    since: int
    silent_s: float


def next_step(view: View, *, backend: str, stale_s: float, budgets: Budgets) -> Step:
    """Decide. The artifact is known to be missing: publication is asked first, each time."""
    if not view.records:
        return Claim(after=0)
    last = view.records[-1]
    if last.ended is None:
        attempt = Attempt(last.token, last.uid)
        if last.extra.get("backend") == backend:
            return Attach(attempt)
        return Fence(attempt, view.silent_s) if view.silent_s >= stale_s else Wait()
    history = history_since(view.records, view.since)
    if not history:
        return Claim(after=last.token)
    decision = decide(history, budgets)
    if isinstance(decision, GiveUp):
        return decision
    return Claim(after=last.token, pause_s=decision.after_s if isinstance(decision, Retry) else 0.0)


def all_are_over(records: Sequence[AttemptRecord]) -> bool:
    """Whether no attempt can still be at work: each one's end is known, and none was only taken for lost from afar."""
    return all(record.ended is not None and end_of(record).ending is not Ending.NODE_LOST for record in records)


def history_since(records: Sequence[AttemptRecord], since: int) -> list[End]:
    """How the attempts after `since` ended. Derived from storage each time: dispatchers that race spend one budget."""
    return [end_of(record) for record in records if record.token > since and record.ended is not None]


def last_of_earlier_runs(newest: AttemptRecord | None) -> int:
    """The number of the newest attempt whose end somebody was told before this run: the last, unless it still goes on."""
    if newest is None:
        return 0
    return newest.token if newest.ended is not None else newest.token - 1


def end_of(record: AttemptRecord) -> End:
    """The end of an attempt as its lease tells it; a published artifact that is gone again counts as unpublished."""
    try:
        end = End.model_validate(record.detail)
    except ValidationError:
        ending = next((ending for ending in Ending if ending.value == record.ended), Ending.CRASHED)
        end = End(ending=ending, what=str(record.detail or record.ended))
    if end.ending is Ending.SUCCEEDED:
        return end.model_copy(update={"ending": Ending.UNPUBLISHED, "what": "it published an artifact that is not there any more"})
    return end
