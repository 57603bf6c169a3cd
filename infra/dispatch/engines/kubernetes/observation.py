"""What the cluster's objects say of an attempt. Pure: objects in, conclusions out.

Only the cluster's positive words count here (a container killed for memory, a pod marked as the target of a disruption);
how each host ended is told by its supervisor's record.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from infra.dispatch.endings import EXIT_CODES, End, Ending

Found = Mapping[str, Any]

# Reasons of a pod's condition DisruptionTarget.
_DISRUPTIONS = {
    "PreemptionByScheduler": Ending.PREEMPTED,
    "EvictionByEvictionAPI": Ending.PREEMPTED,
    "TerminationByKubelet": Ending.PREEMPTED,  # a node under pressure, or shutting down in good order
    "DeletionByTaintManager": Ending.NODE_LOST,
    "DeletionByPodGC": Ending.NODE_LOST,
}
# Reasons of a failed pod as a whole.
_POD_REASONS = {
    "NodeLost": Ending.NODE_LOST,
    "Preempting": Ending.PREEMPTED,
    "Evicted": Ending.PREEMPTED,
    "NodeShutdown": Ending.PREEMPTED,
    "Terminated": Ending.PREEMPTED,
    "Shutdown": Ending.PREEMPTED,
}
# A container that waits for one of these was tried and could not be created.
_CANNOT_START = {
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}
_ENDING_OF_CODE = {code: ending for ending, code in EXIT_CODES.items()}


def condition(found: Found, kind: str) -> Found | None:
    """The object's condition of this type, if it is true."""
    for each in found.get("status", {}).get("conditions", ()):
        if each["type"] == kind and each["status"] == "True":
            return dict(each)
    return None


def is_finished(jobset: Found) -> bool:
    return condition(jobset, "Completed") is not None or condition(jobset, "Failed") is not None


def is_deleting(found: Found) -> bool:
    return "deletionTimestamp" in found["metadata"]


def is_suspended(jobset: Found) -> bool:
    return bool(jobset["spec"].get("suspend"))


def living(pods: Sequence[Found]) -> list[Found]:
    """Pods of which a process may be left."""
    return [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]


def any_started(pods: Sequence[Found]) -> bool:
    return any(pod.get("status", {}).get("phase") in ("Running", "Succeeded", "Failed") for pod in pods)


def host_of(pod: Found) -> int:
    """The pod's completion index."""
    return int(pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index", 0))


def word(jobset: Found, pods: Sequence[Found]) -> End | None:
    """The engine's own reason for the end of an attempt, if it has one: memory first, then the earliest disruption."""
    for pod in pods:
        if any(ended.get("reason") == "OOMKilled" for ended in _terminations(pod)):
            return _end(Ending.OUT_OF_MEMORY, pod, "its container was killed at its memory limit")
    disrupted = sorted(filter(None, map(_disruption, pods)), key=lambda found: found[0])
    if disrupted:
        return disrupted[0][1]
    failed = condition(jobset, "Failed")
    if failed is not None and "DeadlineExceeded" in (failed.get("reason"), *failed.get("message", "").split()):
        return End(ending=Ending.TIMED_OUT, what=f"the cluster's deadline: {failed['message']}")
    return None


def ends_of_exit_codes(pods: Sequence[Found]) -> dict[int, End]:
    """How hosts ended by their supervisors' exit codes: for hosts of which storage has no record."""
    ends = {}
    for pod in pods:
        for ended in _terminations(pod):
            code = int(ended["exitCode"])
            ending = _ENDING_OF_CODE.get(code, Ending.SUPERVISOR_LOST if code > 128 else Ending.APPLICATION_ERROR)
            what = f"its supervisor on {pod['spec'].get('nodeName')} exited with {code} and left no record"
            ends[host_of(pod)] = End(ending=ending, what=what)
    return ends


def refused_by_node(pods: Sequence[Found]) -> End | None:
    """A pod that failed before any container of it was made: the node did not take it."""
    for pod in pods:
        status = pod.get("status", {})
        if status.get("phase") == "Failed" and not _terminations(pod) and _disruption(pod) is None:
            return _end(Ending.NEVER_STARTED, pod, f"its node refused it: {status.get('reason')}: {status.get('message')}")
    return None


def most_telling(pods: Sequence[Found]) -> Found:
    """The pod to read first: the one that failed first, else host 0's."""

    def rank(pod: Found) -> tuple[bool, str, int]:
        finished = [str(ended.get("finishedAt", "")) for ended in _terminations(pod) if ended["exitCode"] != 0]
        return not finished, min(finished, default=""), host_of(pod)

    return min(pods, key=rank)


def cannot_start(pods: Sequence[Found]) -> str | None:
    """Why a container can't be made, as the kubelet says it."""
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", ()):
            waiting = container.get("state", {}).get("waiting", {})
            if waiting.get("reason") in _CANNOT_START:
                return f"pod {pod['metadata']['name']}: {waiting['reason']}: {waiting.get('message', 'no message')}"
    return None


def deactivation(workload: Found | None) -> str | None:
    """Why Kueue will never admit the workload again, if it said so."""
    if workload is None or workload.get("spec", {}).get("active", True):
        return None
    evicted = condition(workload, "Evicted")
    return evicted.get("message", "no message") if evicted is not None else "somebody set it inactive"


def suspension(workload: Found | None) -> End:
    """The word for a set that ran and was suspended."""
    evicted = condition(workload, "Evicted") if workload is not None else None
    if evicted is None:
        return End(ending=Ending.PREEMPTED, what="its JobSet was suspended while it ran")
    ending = Ending.NODE_LOST if evicted.get("reason") in ("NodeFailures", "NodeFailure") else Ending.PREEMPTED
    return End(ending=ending, what=f"Kueue evicted it: {evicted.get('reason')}: {evicted.get('message', 'no message')}")


def _disruption(pod: Found) -> tuple[str, End] | None:
    """When and how something else than the job ended the pod."""
    found = condition(pod, "DisruptionTarget")
    if found is not None and (ending := _DISRUPTIONS.get(found.get("reason", ""))) is not None:
        return found.get("lastTransitionTime", ""), _end(ending, pod, f"{found['reason']}: {found.get('message', 'no message')}")
    status = pod.get("status", {})
    if (ending := _POD_REASONS.get(status.get("reason", ""))) is not None:
        return "", _end(ending, pod, f"{status['reason']}: {status.get('message', 'no message')}")
    return None


def _terminations(pod: Found) -> list[Found]:
    states = [each.get("state", {}) for each in pod.get("status", {}).get("containerStatuses", ())]
    return [state["terminated"] for state in states if "terminated" in state]


def _end(ending: Ending, pod: Found, what: str) -> End:
    return End(ending=ending, what=f"host {host_of(pod)} on {pod['spec'].get('nodeName', 'no node')}: {what}")
