"""A real Ray cluster of several nodes on this machine, in network and process namespaces of its own.

Ray binds whatever address its machine has, and `ray stop` ends every Ray of a machine by name. So the cluster lives where
there is nothing but a loopback device, on which each node has an address of its own; a test that talks to it steps into
that network for as long as it lasts. Whatever the cluster started ends with the namespace's first process, and that ends
with its standard input, so also if the test run is killed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.dispatch.backend import EngineUnavailable
from infra.dispatch.engines.ray.config import RayConfig
from infra.dispatch.engines.ray.jobs_api import JobsApi
from infra.dispatch.environment import SOURCES
from tests.infra.dispatch.builders import wait_for

NODES = 3
TRIES = 3
TOKEN = "5ea0" * 16
_RAY = Path(sys.executable).parent / "ray"
_SPARE_NODES = 12
_MEMORY = 16 << 30
_OBJECTS = 80_000_000
_DOOR = 8265
_SETUP = """
set -e
ip link set lo up
for number in $(seq 0 {nodes}); do ip address add 10.77.0.$((number + 1))/32 dev lo; done
echo ready
read -r _
"""
# A disk of its own for each node, so that the names of their sockets don't meet, at a path that leaves room in the 107 bytes of
# a socket's name: a folder of the test, mounted for the node alone.
# More weight than other sessions of a busy machine: see `add_nodes`.
_START = 'mount --bind "$1" /mnt && shift && { echo -10 > /proc/self/autogroup; } 2> /dev/null; exec "$@"'
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",  # the default from 2.61 on; without a token in the environment it writes one into the home folder
    "RAY_AUTH_TOKEN": TOKEN,
    "RAY_raylet_start_wait_time_s": "60",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "PYTHONWARNINGS": "ignore",
}


@dataclass
class RayCluster:
    """A running cluster.

    Attributes:
        folder: Ray's own files.
        init: outer process id of the namespace's first process.
        nodes: addresses' last numbers of living worker nodes; 0 is the head.
    """

    folder: Path
    init: int
    nodes: list[int] = field(default_factory=list)
    _started: int = 0

    def config(self, **changes: Any) -> RayConfig:
        return RayConfig(
            address=f"http://127.0.0.1:{_DOOR}",
            cluster="loopback",
            token_env="RAY_AUTH_TOKEN",
            python=sys.executable,
            sources=str(SOURCES),
        ).model_copy(update=changes)

    def start_head(self) -> None:
        options = ("--head", "--port=6379", "--num-cpus=0", f"--dashboard-port={_DOOR}", "--dashboard-host=127.0.0.1")
        trouble = self._ray_start(0, *options)
        assert not trouble, trouble

    def add_nodes(self, count: int = 1) -> None:
        """Let nodes of one CPU join, side by side.

        A raylet gives its agent 15 s to start, whatever its settings say, and dies then. So on a machine that is busy
        with other things a node may need another try.
        """
        wanted, failures = len(self.nodes) + count, [""]
        while len(self.nodes) < wanted:
            assert len(failures) <= TRIES, f"a node did not start: {failures[-1]}"
            numbers = range(self._started + 1, self._started + 1 + wanted - len(self.nodes))
            self._started = numbers[-1]
            assert self._started <= _SPARE_NODES, "the cluster has lost too many nodes"
            with ThreadPoolExecutor(len(numbers)) as side_by_side:
                told = list(side_by_side.map(self._join, numbers))
            self.nodes += [number for number, trouble in zip(numbers, told, strict=True) if not trouble]
            failures.append("".join(told))

    def replace_lost_nodes(self) -> None:
        if len(self.nodes) < NODES:
            self.add_nodes(NODES - len(self.nodes))

    def kill_node(self, number: int) -> None:
        """SIGKILL its raylet, which takes whatever else Ray runs there with it."""
        self.nodes.remove(number)
        os.kill(self.process("raylet/raylet", f"--node_ip_address={address(number)}").pid, signal.SIGKILL)

    def process(self, *words: str) -> psutil.Process:
        """The one process of the cluster whose command line has all these words."""
        found = self.processes(*words)
        assert len(found) == 1, f"{len(found)} processes have {words}"
        return found[0]

    def processes(self, *words: str) -> list[psutil.Process]:
        found = []
        for process in psutil.Process(self.init).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                line = " ".join(process.cmdline())
                if process.status() != psutil.STATUS_ZOMBIE and all(word in line for word in words):
                    found.append(process)
        return found

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """Step into the cluster's network: this thread, the threads that it starts, and their processes."""
        with open("/proc/thread-self/ns/net") as home, open(f"/proc/{self.init}/ns/net") as away:
            os.setns(away.fileno(), os.CLONE_NEWNET)
            try:
                yield
            finally:
                os.setns(home.fileno(), os.CLONE_NEWNET)

    def _join(self, number: int) -> str:
        ports = 10_000 + 1_000 * number  # nodes share one machine, so their ports must not meet
        names = ("node-manager", "object-manager", "runtime-env-agent", "dashboard-agent-grpc", "dashboard-agent-listen", "metrics-export")
        return self._ray_start(
            number,
            f"--address={address(0)}:6379",
            "--num-cpus=1",
            f"--labels=rack=r{number % 2}",
            '--resources={"chip": 4}',
            f"--min-worker-port={ports + 100}",
            f"--max-worker-port={ports + 900}",
            *(f"--{name}-port={ports + index}" for index, name in enumerate(names)),
        )

    def _ray_start(self, number: int, *options: str) -> str:
        """Start a node; give what went wrong."""
        disk = self.folder / f"node-{number}"
        disk.mkdir()
        started = subprocess.run(
            [
                *("nsenter", f"--target={self.init}", "--net", "--pid", "--mount", "--"),
                *("unshare", "--mount", "bash", "-c", _START, "ray-node", str(disk)),
                *(str(_RAY), "start", f"--node-ip-address={address(number)}", "--disable-usage-stats", "--temp-dir=/mnt"),
                *(f"--memory={_MEMORY}", f"--object-store-memory={_OBJECTS}", *options),
            ],
            env={**os.environ, **ENVIRONMENT, "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            timeout=150,
        )
        return started.stdout.decode(errors="replace")[-3000:] if started.returncode else ""


def address(number: int) -> str:
    return f"10.77.0.{number + 1}"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[RayCluster]:
    """A cluster of a head and `NODES` nodes."""
    _require_tools()
    script = _SETUP.format(nodes=_SPARE_NODES)
    namespace = subprocess.Popen(
        ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", script, "ray-cluster", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert namespace.stdin is not None
    assert namespace.stdout is not None
    try:
        assert namespace.stdout.readline() == b"ready\n", "the namespace was not made"
        cluster = RayCluster(folder, psutil.Process(namespace.pid).children()[0].pid)
        cluster.start_head()
        cluster.add_nodes(NODES)
        with cluster.network():
            wait_for(lambda: _answers(cluster), "the Jobs API")
        yield cluster
    finally:
        namespace.stdin.close()
        try:
            namespace.wait(20)
        except subprocess.TimeoutExpired:
            namespace.kill()
            namespace.wait()
        namespace.stdout.close()


def _answers(cluster: RayCluster) -> bool:
    api = JobsApi(cluster.config(headers={"Authorization": f"Bearer {TOKEN}"}))
    try:
        return api.job("nobody") is None and len(api.nodes()) > NODES
    except EngineUnavailable:
        return False


def _require_tools() -> None:
    """Skip where the cluster can't be; fail where CI=true."""
    missing = [name for name in ("unshare", "nsenter", "ip", "mount") if shutil.which(name) is None]
    if not _RAY.exists():
        missing.append("ray (pip install 'seaway[ray]')")
    if not missing and os.geteuid() != 0:
        missing.append("root, which alone may make namespaces and step into them")
    if not missing:
        tried = subprocess.run(["unshare", "--net", "--pid", "--fork", "--mount-proc", "true"], capture_output=True)
        if tried.returncode:
            missing.append(f"the right to make namespaces: {tried.stderr.decode().strip()}")
    if missing:
        reason = f"no Ray cluster: this machine misses {', '.join(missing)}"
        assert os.environ.get("CI") != "true", reason
        pytest.skip(reason)
