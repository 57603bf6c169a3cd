"""The nodes of an emulated cluster: a kubelet starts a pod's very command as a process, with the pod's environment and no other."""

import contextlib
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.infra.dispatch.kubernetes_api import Object

INDEX = "batch.kubernetes.io/job-completion-index"
_INHERITED = ("PATH", "HOME", "TMPDIR", "LANG")  # what an image would have, of this machine's


@dataclass
class _Container:
    """A pod's one container."""

    process: subprocess.Popen[bytes]
    log: Path
    asked_s: float | None = None


class Nodes:
    """Every kubelet.

    Attributes:
        silent: nodes that died: nothing more is heard of their pods.
        broken_images: images that can't be pulled.
    """

    def __init__(self, folder: Path) -> None:
        self.silent: set[str] = set()
        self.broken_images: set[str] = set()
        self._folder = folder
        self._containers: dict[str, _Container] = {}

    def step(self, pod: Object) -> bool:
        """Bring a pod nearer to what it should be; False once nothing is left of one that is deleted."""
        uid = pod["metadata"]["uid"]
        container = self._containers.get(uid)
        deleting = "deletionTimestamp" in pod["metadata"]
        if pod["spec"]["nodeName"] in self.silent and pod["status"]["phase"] != "Failed":
            return True
        if container is None or container.process.poll() is not None:
            if container is not None and pod["status"]["phase"] == "Running":
                self.kill(uid)  # whatever process 1 left dies with it
                code = container.process.returncode
                terminate(pod, code if code >= 0 else 128 - code, "Completed" if code == 0 else "Error")
            if container is None and pod["status"]["phase"] == "Pending" and not deleting:
                self._start(pod)
            return not deleting
        if deleting:
            self._stop(uid, container, pod["metadata"]["deletionGracePeriodSeconds"])
        return True

    def kill(self, uid: str) -> None:
        """Kill everything that carries the pod's uid, as the end of a container's process 1 does."""
        container = self._containers[uid]
        if container.process.poll() is None:
            container.process.kill()
        container.process.wait()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.environ().get("SEAWAY_POD_UID") == uid:
                    process.kill()

    def kill_all(self) -> None:
        for uid in self._containers:
            self.kill(uid)

    def read_log(self, pod: Object, tail: int) -> str | None:
        container = self._containers.get(pod["metadata"]["uid"])
        return None if container is None else "".join(container.log.read_text().splitlines(keepends=True)[-tail:])

    def _stop(self, uid: str, container: _Container, grace_s: float) -> None:
        if container.asked_s is None:
            container.asked_s = time.monotonic()
            container.process.send_signal(signal.SIGTERM)
        elif time.monotonic() - container.asked_s > grace_s:
            self.kill(uid)

    def _start(self, pod: Object) -> None:
        container = pod["spec"]["containers"][0]
        if container["image"] in self.broken_images:
            _report(pod, {"waiting": {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{container["image"]}"'}})
            return
        env = _environment(pod, container["env"])
        command = [_expand(word, env) for word in (*container["command"], *container["args"])]
        log = self._folder / f"{pod['metadata']['uid']}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True)
        self._containers[pod["metadata"]["uid"]] = _Container(process, log)
        pod["status"]["phase"] = "Running"
        _report(pod, {"running": {}})


def terminate(pod: Object, code: int, reason: str) -> None:
    """Report the container's end."""
    _report(pod, {"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2026-01-01T00:00:00Z"}})
    pod["status"]["phase"] = "Succeeded" if code == 0 else "Failed"


def _report(pod: Object, state: Object) -> None:
    pod["status"]["containerStatuses"] = [{"name": pod["spec"]["containers"][0]["name"], "state": state}]


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
