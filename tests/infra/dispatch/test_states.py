import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.artifacts.lease import AttemptRecord
from infra.dispatch.endings import COSTS, Budget, End, Ending
from infra.dispatch.states import JobState, job_state, may_be_at_work


def record(token: int, ending: Ending | None = None) -> AttemptRecord:
    detail = End(ending=ending, what="a sentence").model_dump(mode="json") if ending else None
    return AttemptRecord(token=token, uid=f"{token:016x}", ended=ending and ending.value, detail=detail)


ENDINGS = st.sampled_from(Ending)


def test_a_job_that_nobody_tried_is_untried():
    assert job_state([], is_published=False) is JobState.UNTRIED


def test_an_attempt_without_an_end_is_going_on_whatever_came_before():
    assert job_state([record(1, Ending.APPLICATION_ERROR), record(2)], is_published=False) is JobState.GOING_ON


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (Ending.PREEMPTED, JobState.LOST),
        (Ending.NODE_LOST, JobState.LOST),
        (Ending.NEVER_STARTED, JobState.LOST),
        (Ending.APPLICATION_ERROR, JobState.FAILED),
        (Ending.UNSCHEDULABLE, JobState.FAILED),
        (Ending.SUCCEEDED, JobState.FAILED),  # it published, and the artifact is gone
        (Ending.CANCELLED, JobState.CANCELLED),
    ],
)
def test_the_last_end_says_whether_a_person_must_act(ending: Ending, state: JobState):
    assert job_state([record(1, ending)], is_published=False) is state


@given(st.lists(ENDINGS, max_size=4), st.booleans())
def test_what_is_published_stays_published_whatever_is_recorded_later(endings: list[Ending], goes_on: bool):
    records = [record(token, ending) for token, ending in enumerate(endings, 1)] + [record(len(endings) + 1)] * goes_on
    assert job_state(records, is_published=True) is JobState.PUBLISHED


@given(ENDINGS)
def test_only_a_loss_seen_from_afar_leaves_a_doubt_about_an_ended_attempt(ending: Ending):
    assert may_be_at_work(record(1))
    assert may_be_at_work(record(1, ending)) == (ending is Ending.NODE_LOST)


@given(ENDINGS)
def test_a_preemption_or_another_loss_is_never_a_failure(ending: Ending):
    if COSTS[ending].budget is Budget.INFRASTRUCTURE:
        assert job_state([record(1, ending)], is_published=False) is JobState.LOST
