"""A real Slurm cluster on loopback: munged, slurmctld and four slurmd, each started and ended by its id.

Debian's build of slurmd lets several nodes live on one machine. Each claims 16 CPUs and eight GPUs, which are device
nodes that read as zeros where this user may make them. Nothing outside the cluster's own folder is read or written.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from infra.dispatch.engines.slurm.config import Lane, SlurmConfig

NODES = ("n1", "n2", "n3", "n4")
GPUS = 8
KILL_WAIT_S = 4
COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "srun")
_SYSTEM_PATHS = "/usr/sbin:/sbin"
_DEADLINE_S = 30.0

# Each line was found by failing without it, on a machine without cgroup v2 and with other Slurms beside this one.
_SLURM_CONF = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MessageTimeout=10
SlurmctldTimeout=60
SlurmdTimeout=10
KillWait={kill_wait}
MinJobAge=300
InactiveLimit=0
ReturnToService=2
"""
_PARTITIONS = """
PartitionName=main Nodes=ALL PriorityTier=5 PreemptMode=OFF Default=YES State=UP
PartitionName=short Nodes=n1 MaxTime=1 PriorityTier=5 PreemptMode=OFF State=UP
PartitionName=batch Nodes=n[1-2] PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=scrap Nodes=n[1-2] PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName=urgent Nodes=n[1-2] PriorityTier=10 PreemptMode=OFF State=UP
"""


@dataclass
class SlurmCluster:
    """A running cluster.

    Attributes:
        folder: configuration, state and logs; short, since it holds a socket.
        gpus: whether the nodes offer GPUs.
    """

    folder: Path
    gpus: bool
    _daemons: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    def config(self, jobs: Path, **changes: object) -> SlurmConfig:
        """A client's configuration with `jobs` as the shared folder."""
        bands = {"production": Lane(partition="urgent"), "interactive": Lane(partition="main"), "batch": Lane(partition="batch")}
        told = {"cluster": "loopback", "folder": str(jobs), "conf": str(self.conf), "bands": bands, "queue_age_s": 0.0}
        return SlurmConfig.model_validate(told | {"host_address": "127.0.0.1", "completion_s": 60.0} | changes)

    def command(self, *words: str) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(words, env=self._environment(), capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def start(self) -> None:
        self._start("munged", *(f"--{name}={self.folder}/munge/{file}" for name, file in _MUNGE_FILES.items()), "--foreground", "--force")
        _wait(lambda: (self.folder / "munge/socket").exists(), "munged")
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        _wait(lambda: self.idle_nodes() == len(NODES), "four idle nodes")

    def stop(self) -> None:
        for name in [*(node for node in NODES if node in self._daemons), "slurmctld", "munged"]:
            self._end(name, signal.SIGTERM)
        for step in map(psutil.Process, self._stepds()):
            for process in [step, *step.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def start_controller(self, *options: str) -> None:
        self._start("slurmctld", "-D", "-f", str(self.conf), *options)
        _wait(self._answers, "slurmctld")

    def save_state(self) -> None:
        """Wait until the controller has written what it knows now; it does so within five seconds of a job's change."""
        noted, asked_s = self.folder / "state/job_state", time.time()
        change = self.command("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true").strip()
        _wait(lambda: noted.exists() and noted.stat().st_mtime > asked_s, "the controller's state on disk")
        self.command("scancel", change)

    def forget_jobs(self) -> None:
        """Start the controller anew without its state."""
        self._end("slurmctld", signal.SIGTERM)
        self.start_controller("-c")
        _wait(lambda: self.idle_nodes() == len(NODES), "four idle nodes")

    def kill_controller(self) -> None:
        self._end("slurmctld", signal.SIGKILL)

    def start_node(self, node: str) -> None:
        self._start("slurmd", "-D", "-N", node, "-f", str(self.conf), name=node)

    def lose_node(self, node: str) -> None:
        """Kill the node's daemon and everything that it runs, and have the controller know it without its time-out."""
        steps = [psutil.Process(pid) for pid in self._stepds(node)]
        below = [*steps, *(child for step in steps for child in step.children(recursive=True))]
        self._end(node, signal.SIGKILL)
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.command("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    def return_node(self, node: str) -> None:
        self.start_node(node)
        self.command("scontrol", "update", f"nodename={node}", "state=resume")
        _wait(lambda: self.state_of(node) == "idle", f"{node} is idle again")

    def state_of(self, node: str) -> str:
        return self.command("sinfo", "-h", "-N", "-n", node, "-p", "main", "-o", "%t").strip()

    def idle_nodes(self) -> int:
        return self.command("sinfo", "-h", "-N", "-p", "main", "-o", "%t").split().count("idle")

    def jobs(self, name: str) -> list[dict[str, str]]:
        """Jobs of a name that are not over."""
        rows = self.command("squeue", "-h", "--name", name, "-o", "%i %T %N").splitlines()
        return [dict(zip(("id", "state", "nodes"), row.split(), strict=False)) for row in rows]

    def _answers(self) -> bool:
        asked = subprocess.run(["scontrol", "ping"], env=self._environment(), capture_output=True, text=True, timeout=30, check=False)
        return "is UP" in asked.stdout

    def _start(self, command: str, *arguments: str, name: str | None = None) -> None:
        with (self.folder / f"{name or command}.out").open("ab") as out:
            self._daemons[name or command] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", _found(command) or command, *arguments],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _end(self, name: str, number: int) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(number)
        try:
            daemon.wait(_DEADLINE_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def _stepds(self, node: str = "") -> list[int]:
        """Step daemons outlive their slurmd, and write over their environment; but each keeps its node's log open."""
        logs = {str(self.folder / f"slurmd.{name}.log") for name in ([node] if node else NODES)}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.name() == "slurmstepd" and logs & {file.path for file in process.open_files()}:
                    found.append(process.pid)
        return found

    def _environment(self) -> dict[str, str]:
        return {"PATH": f"{os.environ['PATH']}:{_SYSTEM_PATHS}", "SLURM_CONF": str(self.conf), "LC_ALL": "C.UTF-8"}


_MUNGE_FILES = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}


@contextlib.contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    """Start a cluster, and leave no process and no file of it."""
    if missing := [command for command in COMMANDS if _found(command) is None]:
        if os.environ.get("CI") == "true":
            raise FileNotFoundError(f"no Slurm: {', '.join(missing)} missing; install slurmctld, slurmd, slurm-client and munge")
        pytest.skip(f"no Slurm: {', '.join(missing)} missing")
    folder = Path(tempfile.mkdtemp(prefix="seaway-slurm-"))
    try:
        cluster = SlurmCluster(folder, gpus=_write_files(folder))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder)


def _write_files(folder: Path) -> bool:
    folder.chmod(0o755)
    for name in ("munge", "state", "spool", "dev", *(f"spool/{node}" for node in NODES)):
        (folder / name).mkdir()
    (folder / "munge/key").write_bytes(os.urandom(128))
    (folder / "munge/key").chmod(0o600)
    gpus = all(_make_device(folder / f"dev/gpu{number}") for number in range(GPUS))
    (folder / "gres.conf").write_text(f"NodeName=n[1-4] Name=gpu Type=h100 File={folder}/dev/gpu[0-{GPUS - 1}]\n" if gpus else "")
    ports = _free_ports(1 + len(NODES))
    gres = f" Gres=gpu:h100:{GPUS}" if gpus else ""
    where = f"NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1"
    nodes = "".join(
        f"NodeName={node} {where} Port={port} CPUs=16 RealMemory=262144{gres} State=UNKNOWN\n"
        for node, port in zip(NODES, ports[1:], strict=True)
    )
    user = psutil.Process().username()
    head = _SLURM_CONF.format(host=socket.gethostname(), ports=ports, user=user, folder=folder, kill_wait=KILL_WAIT_S)
    (folder / "slurm.conf").write_text(head + nodes + _PARTITIONS)
    return gpus


def _make_device(path: Path) -> bool:
    try:
        os.mknod(path, 0o020666, os.makedev(1, 3))
    except PermissionError:
        return False
    return True


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now; Slurm wants their numbers in a file before it binds them."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _found(command: str) -> str | None:
    return shutil.which(command, path=f"{os.environ['PATH']}:{_SYSTEM_PATHS}")


def _wait(condition, what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {_DEADLINE_S:.0f} s for {what}"
        time.sleep(0.05)
