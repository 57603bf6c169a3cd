"""A cluster's emulator: the API server's, and what JobSet's, the Job's and Kueue's controllers and the kubelets make of its objects.

A kubelet starts the pod's very command as a process of this machine, with the pod's environment and no other, so the whole
path from a manifest to a recorded end is walked. What is emulated is the cluster: no controller of the real ones ran here.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from infra.dispatch.engines.kubernetes.config import KubernetesConfig, NodePool, Volume
from infra.dispatch.environment import SOURCES
from tests.infra.dispatch.kubernetes_api import ApiServer, Object
from tests.infra.dispatch.kubernetes_schemas import jobset_problems, kubernetes_problems

INDEX = "batch.kubernetes.io/job-completion-index"
QUEUE = "kueue.x-k8s.io/queue-name"
_TICK_S = 0.01
_INHERITED = ("PATH", "HOME", "TMPDIR", "LANG")  # what an image would have, of this machine's


@dataclass
class _Container:
    """A pod's one container, as its kubelet holds it."""

    process: subprocess.Popen[bytes]
    log: Path
    asked_s: float | None = None


class Cluster:
    """One namespace, any number of nodes. Starts what is admitted at once, unless told otherwise.

    Attributes:
        admits: whether Kueue admits new sets.
        broken_images: images that no kubelet can pull.
    """

    def __init__(self, folder: Path) -> None:
        self.api = ApiServer({"jobsets": jobset_problems, "poddisruptionbudgets": kubernetes_problems})
        self.api.read_log = self._read_log
        self.admits = True
        self.broken_images: set[str] = set()
        self._folder = folder
        self._containers: dict[str, _Container] = {}
        self._silent_nodes: set[str] = set()
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
                for uid in list(self._containers):
                    self._kill(uid)
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
            self._silent_nodes.add(pod["spec"]["nodeName"])
            self._kill(pod["metadata"]["uid"])
            _set_condition(pod, "DisruptionTarget", "True", "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
            _delete(pod)
            if collected:
                pod["status"]["phase"] = "Failed"

    def kill(self, host: int) -> None:
        """Somebody kills the container's process 1."""
        with self.api.lock:
            self._kill(self.pod(host)["metadata"]["uid"])

    def kill_for_memory(self, host: int) -> None:
        """The kernel kills everything in the container."""
        with self.api.lock:
            pod = self.pod(host)
            self._kill(pod["metadata"]["uid"])
            _terminated(pod, 137, "OOMKilled")

    # The control plane

    def _loop(self) -> None:
        try:
            while not self._stop.wait(_TICK_S):
                with self.api.lock:
                    for jobset in self.api.all("jobsets"):
                        self._admit(jobset)
                        self._reconcile(jobset)
                    for pod in self.api.all("pods"):
                        self._kubelet(pod)
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
            if not pods:
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

    # The nodes

    def _kubelet(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        container = self._containers.get(uid)
        deleting = "deletionTimestamp" in pod["metadata"]
        if pod["spec"]["nodeName"] in self._silent_nodes and pod["status"]["phase"] != "Failed":
            return
        if container is None or container.process.poll() is not None:
            if container is not None and pod["status"]["phase"] == "Running":
                self._kill(uid)  # whatever process 1 left dies with it
                code = container.process.returncode
                _terminated(pod, code if code >= 0 else 128 - code, "Completed" if code == 0 else "Error")
            if deleting:
                self.api.remove("pods", pod)
            elif container is None and pod["status"]["phase"] == "Pending":
                self._start(pod)
        elif deleting:
            grace_s = pod["metadata"]["deletionGracePeriodSeconds"]
            if container.asked_s is None:
                container.asked_s = time.monotonic()
                container.process.send_signal(signal.SIGTERM)
            elif time.monotonic() - container.asked_s > grace_s:
                self._kill(uid)

    def _start(self, pod: Object) -> None:
        container = pod["spec"]["containers"][0]
        if container["image"] in self.broken_images:
            state = {"waiting": {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{container["image"]}"'}}
            pod["status"]["containerStatuses"] = [{"name": container["name"], "state": state}]
            return
        env = _environment(pod, container["env"])
        command = [_expand(word, env) for word in (*container["command"], *container["args"])]
        log = self._folder / f"{pod['metadata']['uid']}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True)
        self._containers[pod["metadata"]["uid"]] = _Container(process, log)
        pod["status"] = {**pod["status"], "phase": "Running", "containerStatuses": [{"name": container["name"], "state": {"running": {}}}]}

    def _kill(self, uid: str) -> None:
        """Kill everything that carries the pod's uid, as the end of a container's process 1 does."""
        container = self._containers[uid]
        if container.process.poll() is None:
            container.process.kill()
        container.process.wait()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.environ().get("SEAWAY_POD_UID") == uid:
                    process.kill()

    def _read_log(self, pod: Object, tail: int) -> str | None:
        container = self._containers.get(pod["metadata"]["uid"])
        return None if container is None else "".join(container.log.read_text().splitlines(keepends=True)[-tail:])


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


def _environment(pod: Object, variables: list[Object]) -> dict[str, str]:
    """As a kubelet does it: in order, each value may name what stands above it. The cluster's DNS is this machine's loopback."""
    env: dict[str, str] = {}
    fields = {"metadata.uid": pod["metadata"]["uid"], f"metadata.annotations['{INDEX}']": pod["metadata"]["annotations"][INDEX]}
    for variable in variables:
        source = variable.get("valueFrom")
        env[variable["name"]] = _expand(variable["value"], env) if source is None else fields[source["fieldRef"]["fieldPath"]]
    own_name = f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}"
    assert env["SEAWAY_HOST_ADDRESS"] == own_name, f"{env['SEAWAY_HOST_ADDRESS']} does not resolve to the pod {own_name}"
    env["SEAWAY_HOST_ADDRESS"] = "127.0.0.1"
    return {**{name: os.environ[name] for name in _INHERITED if name in os.environ}, **env}


def _expand(text: str, env: dict[str, str]) -> str:
    """`$(NAME)` is a variable, `$$` a dollar; what is unknown stays."""
    return re.sub(r"\$\$|\$\(([^)]+)\)", lambda found: "$" if found[1] is None else env.get(found[1], found[0]), text)


def _delete(pod: Object) -> None:
    pod["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
    pod["metadata"].setdefault("deletionGracePeriodSeconds", pod["spec"]["terminationGracePeriodSeconds"])


def _terminated(pod: Object, code: int, reason: str) -> None:
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2026-01-01T00:00:00Z"}}
    pod["status"]["containerStatuses"] = [{"name": pod["spec"]["containers"][0]["name"], "state": state}]
    pod["status"]["phase"] = "Succeeded" if code == 0 else "Failed"


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
