"""Where a job stands, derived from what storage holds. Nothing keeps a state, so none can be wrong or stale.

Records are only added: an attempt's end is written once, and a published artifact stays. So an attempt goes from
`going_on` to its end and never back, and a job that is published stays so.
"""

from collections.abc import Sequence
from enum import StrEnum

from infra.artifacts.lease import AttemptRecord
from infra.dispatch.endings import COSTS, Budget, Ending
from infra.dispatch.plan import all_are_over, end_of


class JobState(StrEnum):
    """How a job stands between two looks at storage."""

    UNTRIED = "untried"
    GOING_ON = "going_on"  # claimed, and nobody recorded an end: queued, running, or an orphan
    LOST = "lost"  # the infrastructure ended the last attempt; whoever runs the job next tries again
    FAILED = "failed"  # a person must act
    CANCELLED = "cancelled"
    PUBLISHED = "published"


def job_state(records: Sequence[AttemptRecord], *, is_published: bool) -> JobState:
    """The state of the job that made these attempts (by number). The manifest decides before every record."""
    if is_published:
        return JobState.PUBLISHED
    if not records:
        return JobState.UNTRIED
    if records[-1].ended is None:
        return JobState.GOING_ON
    ending = end_of(records[-1]).ending
    if ending is Ending.CANCELLED:
        return JobState.CANCELLED
    cost = COSTS[ending]
    return JobState.FAILED if cost.budget is Budget.APPLICATION or not cost.may_retry else JobState.LOST


def may_be_at_work(record: AttemptRecord) -> bool:
    """Whether processes of the attempt can still exist: nobody saw its end, or it was only taken for lost from afar."""
    return not all_are_over([record])
