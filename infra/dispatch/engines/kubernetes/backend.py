"""Kubernetes as an engine: an attempt is a JobSet. Its memory is the cluster's, and the attempt's directory in storage.

The set's name follows from the job id and its labels carry the attempt's uid, so creating it twice is attaching. Once the set is
gone (cancelled, evicted, expired), what is left of the attempt lies in storage: `records`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infra.dispatch.backend import EngineState, EngineUnavailable, Handle, JobRejected
from infra.dispatch.endings import End, Ending
from infra.dispatch.engines.kubernetes import manifests, names, observation
from infra.dispatch.engines.kubernetes.api import ClusterApi, Refused
from infra.dispatch.engines.kubernetes.config import KubernetesConfig
from infra.dispatch.engines.kubernetes.patience import Patience
from infra.dispatch.engines.kubernetes.records import Records
from infra.dispatch.job import Attempt, Job, is_cancelled, job_id, write_spec

_CANCEL_MARGIN_S = 60.0  # beyond a pod's own grace: the control plane's part of a foreground deletion
_CREATE_TRIES = 3
_FIRST_PAUSE_S = 0.02
_MAX_PAUSE_S = 2.0
_HOSTS_A_LOOK = 64

Found = Mapping[str, Any]


class KubernetesBackend:
    """Runs attempts as JobSets in one namespace of one cluster.

    Args:
        clock: monotonic seconds, for the patience with what does not change.

    Raises:
        JobRejected: the client library is missing, or the configured cluster has no credentials.
    """

    def __init__(self, config: KubernetesConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._api = ClusterApi(config)
        self._records: dict[Handle, Records] = {}
        self._patience = Patience(config.start_patience_s, config.lost_patience_s, clock)
        self._seen: dict[Handle, tuple[float, EngineState]] = {}

    @property
    def identity(self) -> str:
        return f"kubernetes:{self._config.cluster}/{self._config.namespace}"

    def submit_or_attach(self, job: Job, attempt: Attempt) -> Handle:
        self._require_runnable(job)
        handle = Handle(job_id(job, attempt.number), attempt)
        spec_url = write_spec(job, attempt)
        self._records[handle] = Records.beside(spec_url, job.resources.target.hosts)
        try:
            jobset = self._own(handle) or self._create(handle, job, spec_url)
            if jobset is not None:
                self._protect(job, attempt, jobset)
        except Refused as refused:
            hint = "; is JobSet installed there, and does the namespace exist?" if refused.status == 404 else ""
            raise JobRejected(f"{job.title}: cluster {self._config.cluster} refused it ({refused.status}): {refused}{hint}") from refused
        return handle

    def poll(self, handle: Handle) -> EngineState:
        last = self._seen.get(handle)
        if last is not None and (last[1].end is not None or self._clock() - last[0] < self._interval_s(handle)):
            return last[1]
        state = _unless_refused(lambda: self._look(handle))
        self._seen[handle] = (self._clock(), state)
        return state

    def cancel(self, handle: Handle) -> bool:
        return _unless_refused(lambda: self._cancel(handle))

    def logs(self, handle: Handle, tail: int) -> str:
        """Of the host whose container failed first; of host 0 if none did."""

        def read() -> str:
            pods = self._pods(handle)
            return self._api.log(observation.most_telling(pods)["metadata"]["name"], manifests.CONTAINER, tail) if pods else ""

        return "\n".join(_unless_refused(read).splitlines()[-tail:])

    def log_location(self, handle: Handle) -> str:
        context = f"--context {self._config.context} " if self._config.context else ""
        selector = f"{names.JOB_LABEL}={handle.job_id},{names.UID_LABEL}={handle.attempt.uid}"
        return f"kubectl {context}-n {self._config.namespace} logs -l {selector} --prefix --tail=-1 --max-log-requests=1000"

    def _interval_s(self, handle: Handle) -> float:
        """Longer for large gangs: a look lists every pod, some 8 kB each."""
        records = self._records.get(handle)
        return self._config.poll_s * max(1, records.hosts // _HOSTS_A_LOOK if records is not None else 1)

    def _require_runnable(self, job: Job) -> None:
        refusal = self._config.refusal(job.resources)
        if refusal is not None:
            raise JobRejected(f"{job.title}: {refusal}")
        if "://" not in job.address and not self._config.volumes:
            raise JobRejected(
                f"{job.title}: its store {job.address} is a folder of this machine, which no pod sees; use an s3:// root, or mount "
                "the folder with the backend's volumes"
            )

    def _own(self, handle: Handle) -> Found | None:
        """The attempt's JobSet; None if there is none, or only another attempt's."""
        jobset = self._api.jobset(names.jobset_name(handle.job_id))
        return jobset if jobset is not None and _uid(jobset) == handle.attempt.uid else None

    def _create(self, handle: Handle, job: Job, spec_url: str) -> Found | None:
        """Create the set, or attach to the one that a racer created; None where the attempt is over already.

        A set of the same name with another attempt's uid belongs to a store that was removed and made anew: it goes.
        """
        records = self._records[handle]
        if is_cancelled(job.address, handle.attempt.number) or records.has_started() or records.word() is not None:
            return None  # it ran, or was not to run, and its set went away: an attempt never starts twice
        queue = self._config.queues.get(job.resources.band)
        if queue is not None and not self._api.queue_exists(queue):
            raise JobRejected(
                f"{job.title}: namespace {self._config.namespace} has no Kueue LocalQueue {queue} for band {job.resources.band}; "
                "create it, or correct the backend's queues"
            )
        manifest = manifests.jobset(job, handle.attempt, self._config, spec_url)
        for _ in range(_CREATE_TRIES):
            try:
                return self._api.create_jobset(manifest)
            except Refused as refused:
                if refused.status != 409:
                    raise
            stored = self._api.jobset(manifest["metadata"]["name"])
            if stored is not None and _uid(stored) == handle.attempt.uid:
                return stored
            if stored is not None:
                self._discard(stored, job.timeouts.kill_grace_s)
        raise EngineUnavailable(f"JobSet {manifest['metadata']['name']} is taken by another attempt that won't go; ask again")

    def _protect(self, job: Job, attempt: Attempt, jobset: Found) -> None:
        """Give the set its disruption budget; where that is refused, the set must not run without."""
        uid = jobset["metadata"]["uid"]
        budget = manifests.disruption_budget(job, attempt, self._config, uid)
        if budget is None:
            return
        try:
            self._api.create_budget(budget)
        except Refused:
            self._api.delete_jobset(jobset["metadata"]["name"], uid)
            raise

    def _discard(self, jobset: Found, grace_s: float) -> None:
        """Remove another attempt's set and wait for its pods; what is left when the time is up shows at the next try."""
        name, uid = jobset["metadata"]["name"], jobset["metadata"]["uid"]
        self._api.delete_jobset(name, uid)

        def gone() -> bool:
            found = self._api.jobset(name)
            return found is None or found["metadata"]["uid"] != uid

        self._wait_until(gone, grace_s + _CANCEL_MARGIN_S)

    def _look(self, handle: Handle) -> EngineState:
        jobset, pods = self._own(handle), self._pods(handle)
        if jobset is None:
            return EngineState("running") if self._patience.left(pods) else EngineState("ended", self._end_of_gone(handle))
        records = self._records_of(handle, jobset)
        if observation.is_finished(jobset):
            return EngineState("running") if self._patience.left(pods) else EngineState("ended", _end(records, jobset, pods))
        if observation.is_deleting(jobset):
            if observation.living(pods) and not self._patience.left(pods):  # only pods on dead nodes hold the deletion up
                return EngineState("ended", _end(records, jobset, pods))
        elif (word := self._reason_to_end(records, jobset, pods)) is not None:
            records.note_word(word)
            self._api.delete_jobset(jobset["metadata"]["name"], jobset["metadata"]["uid"])
        return EngineState("running" if observation.any_started(pods) else "pending")

    def _end_of_gone(self, handle: Handle) -> End:
        records = self._records.get(handle)
        if records is None:
            return End(
                ending=Ending.NODE_LOST, what=f"there is no JobSet {names.jobset_name(handle.job_id)}: it was deleted, or never made"
            )
        return records.end({}, None)

    def _pods(self, handle: Handle) -> list[Found]:
        return self._api.pods(names.selector(names.labels(handle.job_id, handle.attempt)))

    def _records_of(self, handle: Handle, jobset: Found) -> Records:
        """Also for a handle that this client did not submit: the set says where its records lie."""
        spec_url = jobset["metadata"]["annotations"][names.SPEC_ANNOTATION]
        return self._records.setdefault(handle, Records.beside(spec_url, _indexed_job(jobset)["completions"]))

    def _reason_to_end(self, records: Records, jobset: Found, pods: Sequence[Found]) -> End | None:
        """Why an attempt whose set the cluster would go on with must end now; None if it may go on."""
        uid = jobset["metadata"]["uid"]
        if observation.is_suspended(jobset):
            workload = self._api.workload(uid)
            if records.has_started():
                return observation.suspension(workload)  # before Kueue admits it again
            if (why := observation.deactivation(workload)) is not None:
                return End(ending=Ending.UNSCHEDULABLE, what=f"Kueue will not admit it any more: {why}")
            return None
        lost = [pod for pod in pods if self._patience.is_lost(pod)]
        if lost:
            return observation.word(jobset, lost) or End(
                ending=Ending.NODE_LOST, what=f"{lost[0]['metadata']['name']} is dying and does not go"
            )
        trouble = self._patience.trouble_that_stays(uid, pods)
        return None if trouble is None else End(ending=Ending.UNSCHEDULABLE, what=trouble)

    def _cancel(self, handle: Handle) -> bool:
        jobset, grace_s = self._own(handle), 0.0
        if jobset is not None:
            self._records_of(handle, jobset)
            grace_s = float(_indexed_job(jobset)["template"]["spec"]["terminationGracePeriodSeconds"])
            self._api.delete_jobset(jobset["metadata"]["name"], jobset["metadata"]["uid"])
        self._seen.pop(handle, None)

        def gone() -> bool:
            pods = self._pods(handle)
            return not self._patience.left(pods) and (self._own(handle) is None or bool(observation.living(pods)))

        return self._wait_until(gone, grace_s + _CANCEL_MARGIN_S)

    def _wait_until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        """Ask with growing pauses: each look is a request or three."""
        end, pause_s = self._clock() + deadline_s, _FIRST_PAUSE_S
        while not condition():
            if self._clock() >= end:
                return False
            time.sleep(pause_s)
            pause_s = min(_MAX_PAUSE_S, 1.5 * pause_s)
        return True


def _end(records: Records, jobset: Found, pods: Sequence[Found]) -> End:
    by_exit_code = observation.ends_of_exit_codes(pods)
    word = observation.word(jobset, pods)
    return records.end(by_exit_code, word or (None if by_exit_code else observation.refused_by_node(pods)))


def _unless_refused[T](ask: Callable[[], T]) -> T:
    """Ask about a job that may exist: a refusal (a missing permission) says nothing of its fate."""
    try:
        return ask()
    except Refused as refused:
        raise EngineUnavailable(f"the API server refused to say ({refused.status}): {refused}") from refused


def _uid(jobset: Found) -> str | None:
    uid = jobset["metadata"].get("labels", {}).get(names.UID_LABEL)
    return None if uid is None else str(uid)


def _indexed_job(jobset: Found) -> Found:
    found: Found = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    return found
