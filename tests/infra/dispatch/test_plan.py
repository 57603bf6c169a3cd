from typing import Any

from infra.artifacts.lease import AttemptRecord
from infra.dispatch.budgets import Budgets, GiveUp
from infra.dispatch.endings import End, Ending
from infra.dispatch.job import Attempt
from infra.dispatch.plan import Attach, Claim, Fence, Step, View, Wait, all_are_over, last_of_earlier_runs, next_step

HERE, ELSEWHERE = "local:here:/state", "local:there:/state"


def record(token: int, ending: Ending | None = None, backend: str = HERE, steps: int = 1) -> AttemptRecord:
    detail = End(ending=ending, what="a sentence", steps=steps).model_dump(mode="json") if ending else None
    return AttemptRecord(token=token, uid=f"{token:016x}", extra={"backend": backend}, ended=ending and ending.value, detail=detail)


def step(*records: AttemptRecord, since: int = 0, silent_s: float = 0.0, **budgets: Any) -> Step:
    return next_step(View(records, since, silent_s), backend=HERE, stale_s=90.0, budgets=Budgets(**budgets))


def test_nobody_tried_so_the_first_attempt_is_claimed():
    assert step() == Claim(after=0)


def test_an_attempt_that_goes_on_at_this_engine_is_attached_to_however_silent():
    assert step(record(1, Ending.CRASHED), record(2), silent_s=1e6) == Attach(Attempt(2, f"{2:016x}"))


def test_an_attempt_at_another_engine_is_waited_for_until_it_is_stale():
    foreign = record(1, backend=ELSEWHERE)
    assert step(foreign, silent_s=89.0) == Wait()
    assert step(foreign, silent_s=90.0) == Fence(Attempt(1, foreign.uid), 90.0)


def test_an_infrastructure_loss_leads_to_the_next_attempt():
    assert step(record(1, Ending.PREEMPTED)) == Claim(after=1)


def test_repeated_losses_without_progress_pause_before_the_next():
    assert step(record(1, Ending.PREEMPTED, steps=0), record(2, Ending.PREEMPTED, steps=0)) == Claim(after=2, pause_s=1.0)


def test_a_failure_of_this_run_is_reported():
    assert isinstance(step(record(1, Ending.APPLICATION_ERROR)), GiveUp)


def test_a_failure_that_an_earlier_run_reported_is_not_held_against_this_one():
    records = [record(1, Ending.APPLICATION_ERROR)]
    assert step(*records, since=last_of_earlier_runs(records[-1])) == Claim(after=1)


def test_an_attempt_that_was_going_on_at_the_first_look_counts_for_this_run():
    assert last_of_earlier_runs(record(2)) == 1
    assert last_of_earlier_runs(None) == 0
    assert isinstance(step(record(1, Ending.APPLICATION_ERROR), record(2, Ending.APPLICATION_ERROR), since=1), GiveUp)


def test_an_attempt_that_another_dispatcher_made_meanwhile_spends_the_same_budget():
    assert isinstance(step(record(1, Ending.PREEMPTED), record(2, Ending.APPLICATION_ERROR)), GiveUp)


def test_an_artifact_that_was_published_and_is_gone_counts_as_unpublished():
    decision = step(record(1, Ending.SUCCEEDED))
    assert isinstance(decision, GiveUp)
    assert step(record(1, Ending.SUCCEEDED), application=1) == Claim(after=1)


def test_an_end_written_by_somebody_else_is_understood_as_far_as_possible():
    odd = AttemptRecord(token=1, uid="f" * 16, extra={"backend": HERE}, ended="melted", detail="the node is lava")
    assert step(odd) == Claim(after=1)


def test_an_attempt_may_be_at_work_until_its_end_was_seen_where_it_ran():
    assert all_are_over([])
    assert all_are_over([record(1, Ending.CRASHED), record(2, Ending.SUCCEEDED)])
    assert not all_are_over([record(1, Ending.CRASHED), record(2)])
    assert not all_are_over([record(1, Ending.NODE_LOST, backend=ELSEWHERE), record(2, Ending.SUCCEEDED)])
