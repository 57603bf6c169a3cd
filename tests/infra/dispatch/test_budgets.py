import pytest

from infra.dispatch.budgets import MAX_BACKOFF_S, Budgets, GiveUp, Retry, Succeeded, decide
from infra.dispatch.endings import COSTS, EXIT_CODES, Budget, End, Ending, ending_of


def end(ending: Ending, steps: int = 1, saved: int = 0) -> End:
    return End(ending=ending, what="a sentence", steps=steps, saved=saved)


# The contract in words, written down a second time: who pays for which ending.
APPLICATION = {"unpublished", "application_error", "invalid_config", "storage_refused", "out_of_memory", "timed_out"}
INFRASTRUCTURE = {
    "stalled",
    "poisoned_device",
    "crashed",
    "supervisor_lost",
    "preempted",
    "node_lost",
    "storage_away",
    "peer_lost",
    "rendezvous_failed",
}
FREE = {"succeeded", "cancelled", "never_started", "lease_lost", "unschedulable"}


def test_every_ending_is_paid_for_by_exactly_one_budget():
    assert {ending.value for ending in Ending} == APPLICATION | INFRASTRUCTURE | FREE
    assert {ending.value for ending, cost in COSTS.items() if cost.budget is Budget.APPLICATION} == APPLICATION
    assert {ending.value for ending, cost in COSTS.items() if cost.budget is Budget.INFRASTRUCTURE} == INFRASTRUCTURE
    assert {ending.value for ending, cost in COSTS.items() if cost.budget is Budget.NONE} == FREE


@pytest.mark.parametrize("ending", sorted(APPLICATION))
def test_one_application_failure_is_too_many_by_default(ending: str):
    assert isinstance(decide([end(Ending(ending))], Budgets()), GiveUp)


@pytest.mark.parametrize("ending", sorted(APPLICATION - {"invalid_config"}))
def test_an_application_failure_is_retried_as_often_as_the_budget_says(ending: str):
    budgets = Budgets(application=2)
    assert isinstance(decide([end(Ending(ending))] * 2, budgets), Retry)
    assert isinstance(decide([end(Ending(ending))] * 3, budgets), GiveUp)


@pytest.mark.parametrize("ending", sorted(INFRASTRUCTURE))
def test_a_hundred_infrastructure_losses_are_survived_and_the_next_is_reported(ending: str):
    assert isinstance(decide([end(Ending(ending))] * 100, Budgets()), Retry)
    decision = decide([end(Ending(ending))] * 101, Budgets())
    assert isinstance(decision, GiveUp)
    assert "budget of 100" in decision.why


@pytest.mark.parametrize("ending", ["invalid_config", "unschedulable", "cancelled"])
def test_what_would_end_the_same_way_is_never_retried(ending: str):
    assert isinstance(decide([end(Ending(ending))], Budgets(application=100)), GiveUp)


def test_success_ends_the_matter_whatever_happened_before():
    assert isinstance(decide([end(Ending.STALLED), end(Ending.SUCCEEDED)], Budgets()), Succeeded)


def test_losing_a_job_that_never_started_is_free_but_not_for_ever():
    preempted = [end(Ending.PREEMPTED)]
    assert isinstance(decide(preempted + [end(Ending.NEVER_STARTED, 0)] * 19, Budgets(infrastructure=1)), Retry)
    assert isinstance(decide(preempted + [end(Ending.NEVER_STARTED, 0)] * 20, Budgets(infrastructure=1)), GiveUp)


def test_a_process_that_crashes_before_its_first_step_three_times_is_given_up():
    assert isinstance(decide([end(Ending.CRASHED, 0)] * 2, Budgets()), Retry)
    assert isinstance(decide([end(Ending.CRASHED, 0)] * 3, Budgets()), GiveUp)
    assert isinstance(decide([end(Ending.CRASHED, 0)] * 2 + [end(Ending.CRASHED, 7), end(Ending.CRASHED, 0)], Budgets()), Retry)


def test_preemptions_before_the_first_step_are_no_crash_loop():
    assert isinstance(decide([end(Ending.PREEMPTED, 0)] * 50, Budgets()), Retry)


def test_a_first_loss_is_retried_at_once_and_repeated_ones_wait_longer_up_to_a_minute():
    waits = [decide([end(Ending.PREEMPTED, 0)] * losses, Budgets()) for losses in (1, 2, 3, 4, 50)]
    assert [wait.after_s for wait in waits if isinstance(wait, Retry)] == [0.0, 1.0, 2.0, 4.0, MAX_BACKOFF_S]


def test_progress_forgives_earlier_losses():
    decision = decide([end(Ending.PREEMPTED, 0)] * 9 + [end(Ending.PREEMPTED, 5)], Budgets())
    assert decision == Retry(after_s=0.0)


@pytest.mark.parametrize("ending", sorted(INFRASTRUCTURE))
def test_an_infrastructure_loss_after_a_committed_checkpoint_is_free_however_often(ending: str):
    warm = [end(Ending(ending), saved=1)] * 200
    assert decide(warm, Budgets(infrastructure=0)) == Retry(after_s=0.0)
    assert isinstance(decide([*warm, end(Ending(ending))], Budgets(infrastructure=0)), GiveUp), "one without a checkpoint is not"


def test_a_warm_restart_is_no_crash_loop_and_waits_for_nothing():
    assert decide([end(Ending.CRASHED, 0, saved=1)] * 50, Budgets()) == Retry(after_s=0.0)
    assert decide([end(Ending.CRASHED, 0)] * 2 + [end(Ending.CRASHED, 0, saved=1), end(Ending.CRASHED, 0)], Budgets()) == Retry(after_s=0.0)


@pytest.mark.parametrize("ending", sorted(APPLICATION))
def test_a_checkpoint_excuses_no_application_failure(ending: str):
    assert isinstance(decide([end(Ending(ending), saved=5)], Budgets()), GiveUp)


def test_the_exit_codes_of_the_contract():
    assert [EXIT_CODES[ending] for ending in (Ending.SUCCEEDED, Ending.STALLED, Ending.POISONED_DEVICE)] == [0, 124, 125]
    assert ending_of(-11) is Ending.CRASHED
    assert ending_of(3) is Ending.APPLICATION_ERROR


@pytest.mark.parametrize("ending", sorted(EXIT_CODES))
def test_an_exit_code_tells_the_ending_it_was_made_from(ending: Ending):
    assert ending_of(EXIT_CODES[ending]) is ending
