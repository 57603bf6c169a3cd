"""What the cluster's objects mean, as a table."""

from typing import Any

import pytest

from infra.dispatch.endings import EXIT_CODES, End, Ending
from infra.dispatch.engines.kubernetes import observation
from infra.dispatch.engines.kubernetes.records import without_echoes
from infra.dispatch.gang import Fallen, gang_end

INDEX = "batch.kubernetes.io/job-completion-index"
RUNNING: dict[str, Any] = {"spec": {}, "metadata": {"name": "set"}, "status": {"conditions": []}}


def pod(host: int = 0, *, phase: str = "Failed", container: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    states = [] if container is None else [{"name": "supervisor", "state": container}]
    return {
        "metadata": {"name": f"set-h-0-{host}-abcde", "annotations": {INDEX: str(host)}},
        "spec": {"nodeName": f"n{host}"},
        "status": {"phase": phase, "conditions": [], "containerStatuses": states, **status},
    }


def disrupted(reason: str, at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "why", "lastTransitionTime": at}


def exited(code: int, reason: str = "Error", at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        ("PreemptionByScheduler", Ending.PREEMPTED),
        ("EvictionByEvictionAPI", Ending.PREEMPTED),
        ("TerminationByKubelet", Ending.PREEMPTED),
        ("DeletionByTaintManager", Ending.NODE_LOST),
        ("DeletionByPodGC", Ending.NODE_LOST),
    ],
)
def test_a_disruption_is_the_engines_word(reason: str, ending: Ending):
    word = observation.word(RUNNING, [pod(0), pod(3, conditions=[disrupted(reason)])])
    assert word is not None
    assert word.ending is ending
    assert word.what == f"host 3 on n3: {reason}: why"


@pytest.mark.parametrize(
    ("reason", "ending"),
    [("NodeLost", Ending.NODE_LOST), ("Preempting", Ending.PREEMPTED), ("Evicted", Ending.PREEMPTED), ("Terminated", Ending.PREEMPTED)],
)
def test_a_kubelet_gives_its_reason_on_the_pod(reason: str, ending: Ending):
    word = observation.word(RUNNING, [pod(reason=reason, message="why")])
    assert word is not None
    assert word.ending is ending


def test_a_condition_that_is_not_true_says_nothing():
    assert observation.word(RUNNING, [pod(conditions=[{**disrupted("DeletionByPodGC"), "status": "False"}])]) is None


def test_a_kill_at_the_memory_limit_is_the_cause_of_what_follows():
    word = observation.word(RUNNING, [pod(0, conditions=[disrupted("EvictionByEvictionAPI")]), pod(1, container=exited(137, "OOMKilled"))])
    assert word is not None
    assert (word.ending, word.what) == (Ending.OUT_OF_MEMORY, "host 1 on n1: its container was killed at its memory limit")


def test_the_earliest_disruption_is_the_cause():
    later, first = disrupted("EvictionByEvictionAPI", "2026-01-01T00:00:09Z"), disrupted("DeletionByTaintManager", "2026-01-01T00:00:01Z")
    word = observation.word(RUNNING, [pod(0, conditions=[later]), pod(1, conditions=[first])])
    assert word is not None
    assert word.ending is Ending.NODE_LOST


def test_an_administrators_deadline_is_a_timeout():
    failed = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "first failed job: set-h-0 due to DeadlineExceeded"}
    word = observation.word({**RUNNING, "status": {"conditions": [failed]}}, [])
    assert word is not None
    assert word.ending is Ending.TIMED_OUT


def test_a_plain_failure_is_left_to_the_hosts_records():
    failed = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "first failed job: set-h-0"}
    assert observation.word({**RUNNING, "status": {"conditions": [failed]}}, [pod(container=exited(1))]) is None


@pytest.mark.parametrize("ending", sorted(EXIT_CODES))
def test_the_supervisors_exit_code_tells_what_its_record_would(ending: Ending):
    assert observation.ends_of_exit_codes([pod(2, container=exited(EXIT_CODES[ending]))])[2].ending is ending


@pytest.mark.parametrize(("code", "ending"), [(137, Ending.SUPERVISOR_LOST), (139, Ending.SUPERVISOR_LOST), (2, Ending.APPLICATION_ERROR)])
def test_a_killed_supervisor_is_no_failure_of_the_application(code: int, ending: Ending):
    assert observation.ends_of_exit_codes([pod(container=exited(code))])[0].ending is ending


def test_a_pod_that_its_node_did_not_take_never_started():
    end = observation.refused_by_node([pod(reason="OutOfcpu", message="Node didn't have enough resource: cpu")])
    assert end is not None
    assert end.ending is Ending.NEVER_STARTED
    assert observation.refused_by_node([pod(container=exited(1))]) is None


def test_a_container_that_is_only_being_created_is_no_trouble():
    assert observation.cannot_start([pod(phase="Pending", container={"waiting": {"reason": "ContainerCreating"}})]) is None
    trouble = observation.cannot_start(
        [pod(phase="Pending", container={"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})]
    )
    assert trouble == "pod set-h-0-0-abcde: ImagePullBackOff: no such image"


def test_the_log_to_read_first_is_the_one_of_the_first_failure():
    pods = [pod(0, container=exited(143, at="2026-01-01T00:00:09Z")), pod(1, container=exited(1, at="2026-01-01T00:00:01Z"))]
    assert observation.most_telling(pods) is pods[1]
    assert observation.most_telling([pod(1, phase="Running"), pod(0, phase="Running")])["metadata"]["name"] == "set-h-0-0-abcde"


def test_an_eviction_for_a_dead_node_is_a_lost_node():
    def evicted(reason: str) -> dict[str, Any]:
        return {"spec": {}, "status": {"conditions": [{"type": "Evicted", "status": "True", "reason": reason, "message": "why"}]}}

    assert observation.suspension(evicted("NodeFailures")).ending is Ending.NODE_LOST
    assert observation.suspension(evicted("Preempted")).ending is Ending.PREEMPTED
    assert observation.suspension(None).ending is Ending.PREEMPTED


def end(ending: Ending) -> End:
    return End(ending=ending, what=ending.value)


def gangs_end(recorded: dict[int, Ending], by_exit_code: dict[int, Ending], fallen: tuple[int, Ending] | None, hosts: int) -> Ending:
    ends, first = without_echoes(
        {host: end(ending) for host, ending in recorded.items()},
        {host: end(ending) for host, ending in by_exit_code.items()},
        None if fallen is None else Fallen(host=fallen[0], end=end(fallen[1])),
        hosts,
    )
    return gang_end(ends, hosts, first, None).ending


P, A, L, C = Ending.PREEMPTED, Ending.APPLICATION_ERROR, Ending.SUPERVISOR_LOST, Ending.CRASHED


@pytest.mark.parametrize(
    ("recorded", "by_exit_code", "fallen", "hosts", "expected"),
    [
        ({0: P, 1: A}, {1: A}, (1, A), 2, A),  # host 1 raised, and the Job then ended host 0
        ({0: P, 1: C}, {1: C}, (1, C), 2, C),
        ({0: P}, {1: L}, (0, P), 2, L),  # host 1's supervisor was killed; host 0 was told to stop because of that
        ({}, {1: A}, None, 3, A),  # host 1's image could not even start it; the Job ended the others before they could write
        ({0: P, 1: P}, {}, (1, P), 2, P),  # a drain
        ({0: P}, {}, (0, P), 2, Ending.NODE_LOST),  # host 1's node died, and the Job ended host 0
        ({0: A}, {0: A}, (0, A), 2, Ending.NODE_LOST),  # host 0 raised because host 1's node died
        ({0: Ending.SUCCEEDED, 1: P}, {}, None, 2, Ending.SUCCEEDED),
    ],
)
def test_what_a_job_does_to_the_other_pods_is_no_cause(
    recorded: dict[int, Ending], by_exit_code: dict[int, Ending], fallen: tuple[int, Ending] | None, hosts: int, expected: Ending
):
    assert gangs_end(recorded, by_exit_code, fallen, hosts) is expected
