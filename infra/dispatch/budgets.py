"""Two budgets: failures of the application, and losses of the infrastructure. History in, decision out."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from infra.dispatch.endings import COSTS, Budget, End, Ending

MAX_BACKOFF_S = 60.0


class Budgets(BaseModel):
    """How much may go wrong before a person is asked.

    A preemption, a lost node or a crash costs infrastructure; an exception costs application. Losing a job that
    never started is free, but an engine that starts nothing for long is reported. Free, too, is an infrastructure
    loss after a checkpoint was committed: the next attempt goes on from there, so each such restart has made progress.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    application: int = Field(default=0, ge=0)
    infrastructure: int = Field(default=100, ge=0)
    never_started_in_a_row: int = Field(default=20, ge=1)
    crashes_before_first_step_in_a_row: int = Field(default=3, ge=1, description="a loop that no restart will cure")
    backoff_s: float = Field(default=1.0, ge=0, description="after the second loss in a row, doubling up to a minute")


class Succeeded(BaseModel):
    """The last attempt published."""

    model_config = ConfigDict(frozen=True)
    kind: Literal["succeeded"] = "succeeded"


class Retry(BaseModel):
    """Try again after a pause."""

    model_config = ConfigDict(frozen=True)
    kind: Literal["retry"] = "retry"
    after_s: float


class GiveUp(BaseModel):
    """Ask a person. `why` completes the sentence 'given up because ...'."""

    model_config = ConfigDict(frozen=True)
    kind: Literal["give_up"] = "give_up"
    why: str


Decision = Succeeded | Retry | GiveUp


def decide(history: Sequence[End], budgets: Budgets) -> Decision:
    """What to do after the last end in `history` (oldest first, never empty)."""
    last = history[-1]
    if last.ending is Ending.SUCCEEDED:
        return Succeeded()
    if not COSTS[last.ending].may_retry:
        return GiveUp(why="another attempt would end the same way" if last.ending is not Ending.CANCELLED else "it was cancelled")
    for budget, limit in ((Budget.APPLICATION, budgets.application), (Budget.INFRASTRUCTURE, budgets.infrastructure)):
        spent = sum(COSTS[end.ending].budget is budget and not is_warm(end) for end in history)
        if spent > limit:
            return GiveUp(why=f"{_count(spent, budget.value + ' failure')} used up the budget of {limit}")
    if (unstarted := _run_length(history, Ending.NEVER_STARTED)) >= budgets.never_started_in_a_row:
        return GiveUp(why=f"the engine took it {unstarted} times and never started it")
    if (crashes := _early_crashes(history)) >= budgets.crashes_before_first_step_in_a_row:
        return GiveUp(why=f"it ended {crashes} times in a row before its first completed step")
    return Retry(after_s=_backoff_s(history, budgets))


def is_warm(end: End) -> bool:
    """Whether what follows this end is a warm restart: infrastructure was lost after a checkpoint was committed."""
    return COSTS[end.ending].budget is Budget.INFRASTRUCTURE and end.saved > 0


def _run_length(history: Sequence[End], ending: Ending) -> int:
    return sum(1 for _ in takewhile(lambda end: end.ending is ending, reversed(history)))


def _early_crashes(history: Sequence[End]) -> int:
    return sum(1 for _ in takewhile(lambda end: COSTS[end.ending].self_inflicted and not _advanced(end), reversed(history)))


def _backoff_s(history: Sequence[End], budgets: Budgets) -> float:
    """None after a loss that followed progress, or after a first one; then doubling."""
    losses = sum(1 for _ in takewhile(lambda end: not _advanced(end) and end.ending is not Ending.LEASE_LOST, reversed(history)))
    return 0.0 if losses < 2 else min(MAX_BACKOFF_S, budgets.backoff_s * 2.0 ** min(losses - 2, 16))


def _advanced(end: End) -> bool:
    return end.steps > 0 or end.saved > 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
