import signal

import pytest

from infra.dispatch.endings import Ending
from infra.supervise.pulse import Failure
from infra.supervise.verdict import Evidence, Stop, verdict

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
