import signal

import pytest

from infra.dispatch.endings import Ending
from infra.supervise.pulse import Failure
from infra.supervise.verdict import Evidence, GangEvidence, RankEnd, Stop, gang_verdict, is_explained, verdict

STALL = Stop(Ending.STALLED, "no step was completed for 5 s")
CANCEL = Stop(Ending.CANCELLED, "it was cancelled")
RAISED = Failure("application_error", "KeyError: 'x'", ())


@pytest.mark.parametrize(
    ("returncode", "stop", "failure"), [(0, None, None), (-9, None, None), (-15, CANCEL, None), (0, STALL, None), (1, None, RAISED)]
)
def test_what_is_published_has_succeeded_whatever_became_of_the_process(returncode: int, stop: Stop | None, failure: Failure | None):
    assert verdict(Evidence(True, returncode, stop, failure))[0] is Ending.SUCCEEDED


def test_a_clean_exit_without_publication_has_failed():
    assert verdict(Evidence(False, 0))[0] is Ending.UNPUBLISHED


def test_an_objection_after_somebody_else_published_is_not_lost():
    assert verdict(Evidence(True, 1, failure=RAISED)) == (Ending.SUCCEEDED, "published, then: KeyError: 'x'")


@pytest.mark.parametrize("returncode", [0, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGUSR1, -signal.SIGSEGV])
def test_the_signals_of_a_stall_are_the_stall(returncode: int):
    assert verdict(Evidence(False, returncode, STALL)) == (Ending.STALLED, STALL.what)


@pytest.mark.parametrize(("returncode", "ending"), [(125, Ending.POISONED_DEVICE), (-signal.SIGBUS, Ending.CRASHED)])
def test_another_signal_or_sentinel_wins_over_a_stall(returncode: int, ending: Ending):
    assert verdict(Evidence(False, returncode, STALL))[0] is ending


def test_the_workers_own_word_wins_over_a_stall():
    assert verdict(Evidence(False, 1, STALL, RAISED)) == (Ending.APPLICATION_ERROR, "KeyError: 'x'")


@pytest.mark.parametrize("returncode", [1, -15, -9, -11, 125])
def test_a_cancel_explains_every_end(returncode: int):
    assert verdict(Evidence(False, returncode, CANCEL, RAISED))[0] is Ending.CANCELLED


@pytest.mark.parametrize(
    ("returncode", "ending"), [(124, Ending.STALLED), (125, Ending.POISONED_DEVICE), (3, Ending.APPLICATION_ERROR), (-6, Ending.CRASHED)]
)
def test_exit_codes_speak_for_a_worker_that_said_nothing(returncode: int, ending: Ending):
    assert verdict(Evidence(False, returncode))[0] is ending


def test_a_kill_that_the_kernel_counts_as_its_own_is_out_of_memory():
    assert verdict(Evidence(False, -9, oom_kills=1))[0] is Ending.OUT_OF_MEMORY
    assert verdict(Evidence(False, -9, oom_kills=0))[0] is Ending.CRASHED
    assert verdict(Evidence(False, -11, oom_kills=1))[0] is Ending.CRASHED


GANG_CANCEL = GangEvidence(False, (RankEnd(1, -9),), CANCEL, has_rank_0=True)
KILLED, ABORTED, RETURNED = RankEnd(2, -signal.SIGKILL), RankEnd(0, -signal.SIGABRT), RankEnd(3, 0)
ANSWERED = RankEnd(1, 1, Failure("application_error", "ValueError: nobody answered", ()))


def gang(
    *ended: RankEnd, published: bool = False, stop: Stop | None = None, has_rank_0: bool = True, oom_kills: int = 0
) -> tuple[Ending, str]:
    return gang_verdict(GangEvidence(published, ended, stop, has_rank_0, oom_kills))[:2]


def test_of_ranks_that_fell_together_the_cause_is_named_and_not_the_answer_to_it():
    assert gang(ABORTED, ANSWERED, KILLED, RETURNED) == (Ending.CRASHED, "rank 2: the process was killed by SIGKILL")
    assert gang(ABORTED, ANSWERED) == (Ending.APPLICATION_ERROR, "rank 1: ValueError: nobody answered")


@pytest.mark.parametrize("returncode", [-signal.SIGABRT, 134])
def test_an_abort_in_a_gang_is_a_symptom(returncode: int):
    assert gang(RankEnd(0, returncode))[0] is Ending.PEER_LOST
    assert not is_explained([RankEnd(0, returncode), RETURNED])
    assert is_explained([RankEnd(0, returncode), KILLED])


def test_a_rank_that_had_returned_is_named_beside_a_symptom():
    assert gang(ABORTED, RETURNED)[1].endswith("; rank 3 had returned before")


def test_why_the_supervisor_ended_a_gang_wins_over_what_that_made_of_the_ranks():
    assert gang(KILLED, stop=STALL) == (Ending.STALLED, STALL.what)
    assert gang_verdict(GANG_CANCEL)[0] is Ending.CANCELLED


def test_a_gang_has_succeeded_when_it_is_published_and_else_rank_0_owes_an_artifact():
    assert gang(KILLED, published=True)[0] is Ending.SUCCEEDED
    assert gang(RankEnd(0, 0), RankEnd(1, 0))[0] is Ending.UNPUBLISHED
    assert gang(RankEnd(4, 0), RankEnd(5, 0), has_rank_0=False)[0] is Ending.SUCCEEDED


def test_a_rank_that_the_kernel_killed_for_memory_is_out_of_memory():
    assert gang(KILLED, oom_kills=1)[0] is Ending.OUT_OF_MEMORY
