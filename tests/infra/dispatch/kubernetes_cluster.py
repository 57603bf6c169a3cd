"""A cluster's emulator: the API server's, and what JobSet's, the Job's and Kueue's controllers and the kubelets make of its objects.

The pods' commands really run (`kubernetes_nodes`), so the whole path from a manifest to a recorded end is walked. What is
emulated is the cluster: none of the real controllers ran here.
"""

import contextlib
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.dispatch.engines.kubernetes.config import KubernetesConfig, NodePool, Volume
from infra.dispatch.environment import SOURCES
from tests.infra.dispatch.kubernetes_api import ApiServer, Object
from tests.infra.dispatch.kubernetes_nodes import INDEX, Nodes, terminate
from tests.infra.dispatch.kubernetes_schemas import jobset_problems, kubernetes_problems

QUEUE = "kueue.x-k8s.io/queue-name"
_TICK_S = 0.01


class Cluster:
    """One namespace, any number of nodes. Starts what is admitted at once, unless told otherwise.

    Attributes:
        admits: whether Kueue admits new sets.
        nodes: every kubelet.
    """

    def __init__(self, folder: Path) -> None:
        self.api = ApiServer({"jobsets": jobset_problems, "poddisruptionbudgets": kubernetes_problems})
        self.nodes = Nodes(folder)
        self.api.read_log = self.nodes.read_log
        self.admits = True
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._loop)
        self._kubeconfig = folder / "kubeconfig.yaml"
        self._kubeconfig.write_text(_KUBECONFIG.format(url=self.api.url))

    def config(self, **changes: Any) -> KubernetesConfig:
        """How a profile would name this cluster."""
        settings: dict[str, Any] = {
            "cluster": "emulated",
            "image": "seaway:test",
            "kubeconfig": str(self._kubeconfig),
            "python": sys.executable,
            "sources": str(SOURCES),
            "pools": {"cpu": NodePool()},
            "volumes": (Volume(name="store", mount_path="/store", source={"hostPath": {"path": "/store"}}),),
            "poll_s": 0.0,
            "request_timeout_s": 5.0,
        }
        return KubernetesConfig(**{**settings, **changes})

    @contextlib.contextmanager
    def running(self) -> Iterator["Cluster"]:
        with self.api.serving():
            self._thread.start()
            try:
                yield self
            finally:
                self._stop.set()
                self._thread.join()
                self.nodes.kill_all()
        if self._failure is not None:
            raise self._failure

    # What a test does to the cluster

    def pod(self, host: int) -> Object:
        return next(pod for pod in self.api.all("pods") if pod["metadata"]["annotations"][INDEX] == str(host))

    def preempt(self, reason: str = "Preempted") -> None:
        """Kueue takes back what it admitted, for a workload of a higher priority."""
        with self.api.lock:
            for workload in self.api.all("workloads"):
                _set_condition(workload, "Evicted", "True", reason, "Preempted to accommodate a workload of higher priority")
                _set_condition(workload, "Admitted", "False", "NoReservation", "The workload has no reservation")
            for jobset in self.api.all("jobsets"):
                jobset["spec"]["suspend"] = True

    def readmit(self) -> None:
        """Kueue starts again what it had evicted."""
        with self.api.lock:
            for workload in self.api.all("workloads"):
                _set_condition(workload, "Evicted", "False", "QuotaReserved", "Previously: Preempted")
                _set_condition(workload, "Admitted", "True", "Admitted", "The workload is admitted")
            for jobset in self.api.all("jobsets"):
                jobset["spec"]["suspend"] = False

    def deactivate(self) -> None:
        """Kueue gives a workload up for good."""
        with self.api.lock:
            for workload in self.api.all("workloads"):
                workload["spec"]["active"] = False
                _set_condition(workload, "Evicted", "True", "Deactivated", "exceeded the maximum number of re-queuing retries")

    def drain(self, host: int) -> None:
        """Somebody drains the node: a voluntary eviction, with the pod's grace."""
        with self.api.lock:
            pod = self.pod(host)
            _set_condition(pod, "DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting")
            _delete(pod)

    def lose_node(self, host: int, *, collected: bool = True) -> None:
        """The node dies. `collected`: the control plane also removes its pod; else it stays, dying for ever."""
        with self.api.lock:
            pod = self.pod(host)
            self.nodes.silent.add(pod["spec"]["nodeName"])
            self.nodes.kill(pod["metadata"]["uid"])
            _set_condition(pod, "DisruptionTarget", "True", "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
            _delete(pod)
            if collected:
                pod["status"]["phase"] = "Failed"

    def kill(self, host: int) -> None:
        """Somebody kills the container's process 1."""
        with self.api.lock:
            self.nodes.kill(self.pod(host)["metadata"]["uid"])

    def kill_for_memory(self, host: int) -> None:
        """The kernel kills everything in the container."""
        with self.api.lock:
            pod = self.pod(host)
            self.nodes.kill(pod["metadata"]["uid"])
            terminate(pod, 137, "OOMKilled")

    # The control plane

    def _loop(self) -> None:
        try:
            while not self._stop.wait(_TICK_S):
                with self.api.lock:
                    for jobset in self.api.all("jobsets"):
                        self._admit(jobset)
                        self._reconcile(jobset)
                    for pod in self.api.all("pods"):
                        if not self.nodes.step(pod):
                            self.api.remove("pods", pod)
        except BaseException as error:
            self._failure = error
            raise

    def _admit(self, jobset: Object) -> None:
        queue = jobset["metadata"]["labels"].get(QUEUE)
        if queue is None:
            return
        uid, namespace = jobset["metadata"]["uid"], jobset["metadata"]["namespace"]
        own = [found for found in self.api.all("workloads") if found["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == uid]
        if "deletionTimestamp" in jobset["metadata"]:
            for workload in own:
                self.api.remove("workloads", workload)
            return
        workload = own[0] if own else self.api.put("workloads", _workload(jobset["metadata"]["name"], namespace, uid, queue))
        if self.admits and workload["spec"]["active"] and not workload["status"]["conditions"]:
            _set_condition(workload, "Admitted", "True", "Admitted", "The workload is admitted")
            jobset["spec"]["suspend"] = False

    def _reconcile(self, jobset: Object) -> None:
        """JobSet's and the Job's controllers in one."""
        pods = [
            pod for pod in self.api.all("pods") if pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"] == jobset["metadata"]["uid"]
        ]
        status, spec = jobset.setdefault("status", {"conditions": []}), jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
        if "deletionTimestamp" in jobset["metadata"]:
            if not pods or not jobset["metadata"].get("finalizers"):
                self._collect(jobset)
            for pod in pods:
                _delete(pod)
            return
        if status["conditions"]:
            return
        alive = [pod for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        if jobset["spec"]["suspend"]:
            status["started"] = False
            for pod in alive:
                _delete(pod)
            return
        if not status.get("started"):
            for index in range(spec["completions"]):
                self.api.put("pods", _pod(jobset, spec["template"], index))
            status["started"] = True
            return
        failed = [pod for pod in pods if pod["status"]["phase"] == "Failed" or "deletionTimestamp" in pod["metadata"]]
        if len(pods) == spec["completions"] and not failed and not alive:
            _set_condition(jobset, "Completed", "True", "AllJobsCompleted", "jobset completed successfully")
        if failed or len(pods) < spec["completions"]:
            for pod in alive:
                _delete(pod)
            if not alive:
                _set_condition(jobset, "Failed", "True", "FailedJobs", "jobset failed due to one or more job failures")

    def _collect(self, jobset: Object) -> None:
        """Remove the set and what it owns."""
        self.api.remove("jobsets", jobset)
        for budget in self.api.all("poddisruptionbudgets"):
            if budget["metadata"]["ownerReferences"][0]["uid"] == jobset["metadata"]["uid"]:
                self.api.remove("poddisruptionbudgets", budget)


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """A fresh, running cluster."""
    with tempfile.TemporaryDirectory(prefix="seaway-kubernetes-") as folder, Cluster(Path(folder)).running() as started:
        yield started


def _pod(jobset: Object, template: Object, index: int) -> Object:
    name = f"{jobset['metadata']['name']}-{jobset['spec']['replicatedJobs'][0]['name']}-0-{index}"
    labels = {**template["metadata"]["labels"], "jobset.sigs.k8s.io/jobset-uid": jobset["metadata"]["uid"], INDEX: str(index)}
    return {
        "metadata": {
            "name": f"{name}-{uuid.uuid4().hex[:5]}",
            "namespace": jobset["metadata"]["namespace"],
            "labels": labels,
            "annotations": {**template["metadata"]["annotations"], INDEX: str(index)},
        },
        "spec": {**template["spec"], "hostname": name, "subdomain": jobset["metadata"]["name"], "nodeName": f"node-{uuid.uuid4().hex[:5]}"},
        "status": {"phase": "Pending", "conditions": []},
    }


def _workload(name: str, namespace: str, uid: str, queue: str) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": f"jobset-{name}", "namespace": namespace, "labels": {"kueue.x-k8s.io/job-uid": uid}},
        "spec": {"active": True, "queueName": queue},
        "status": {"conditions": []},
    }


def _delete(pod: Object) -> None:
    pod["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
    pod["metadata"].setdefault("deletionGracePeriodSeconds", pod["spec"]["terminationGracePeriodSeconds"])


def _set_condition(found: Object, kind: str, status: str, reason: str, message: str) -> None:
    conditions = [each for each in found["status"]["conditions"] if each["type"] != kind]
    new = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    found["status"]["conditions"] = [*conditions, new]


_KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: emulated
clusters: [{{name: emulated, cluster: {{server: "{url}"}}}}]
contexts: [{{name: emulated, context: {{cluster: emulated, user: nobody}}}}]
users: [{{name: nobody, user: {{}}}}]
"""
