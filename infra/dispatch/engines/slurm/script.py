"""A job as Slurm's commands take it: sbatch's options, the batch script, and the srun that starts a supervisor on each host. Pure."""

import math
import re
import shlex
from collections.abc import Sequence

from infra.dispatch.devices import Device
from infra.dispatch.engines.slurm.config import SlurmConfig
from infra.dispatch.job import Attempt, Job, Resources, job_id

MIB = 1024**2
# Slurm's limit is only the second net: the supervisor's own clock begins with the worker, and it dumps stacks first.
_TIME_MARGIN_S = 300.0


def options(config: SlurmConfig, job: Job, attempt: Attempt, log: str) -> list[str]:
    """Options of sbatch. `--no-requeue`: Slurm never starts an attempt twice; the dispatcher makes the next one."""
    return [
        f"--job-name={job_id(job, attempt.number)}",
        f"--comment={attempt.uid}",
        "--dependency=singleton",  # of one name and user, one runs at a time
        "--no-requeue",
        f"--output={log}",
        "--open-mode=append",
        "--export=ALL",
        "--chdir=/",
        *_resources(config, job.resources),
        *_time(job.timeouts.wall_s, job.timeouts.kill_grace_s),
        *_lane(config, job.resources),
    ]


def batch_script(python: str, spec_url: str, uid: str, host_address: str) -> str:
    """Runs once, on the first host."""
    command = [python, "-P", "-m", "infra.dispatch.engines.slurm.launch", spec_url, uid, host_address]
    return f"#!/bin/sh\nexec {shlex.join(command)}\n"


def step(python: str, spec_url: str, host_address: str, resources: Resources) -> list[str]:
    """The srun command line: one supervisor a host, none killed because another ended; they watch each other.

    Args:
        host_address: template of the address by which other hosts reach one; `{node}` is its NodeName.
    """
    hosts = resources.target.hosts
    address = host_address.replace("{node}", "${SLURMD_NODENAME}")
    start = f'SEAWAY_HOST_ADDRESS="{address}" exec "$0" -P -m infra.supervise "$1" --host "$SLURM_NODEID"'
    return [
        "srun",
        f"--nodes={hosts}",
        f"--ntasks={hosts}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={_cpus(resources)}",  # since 22.05 a step doesn't inherit it
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--mpi=none",
        *(["--label"] if hosts > 1 else []),
        "sh",
        "-c",
        start,
        python,
        spec_url,
    ]


def family_of(target: Device) -> str:
    """`h100` of `h100x64`."""
    return re.sub(r"(x|-)\d+$", "", target.name)


def _resources(config: SlurmConfig, resources: Resources) -> Sequence[str]:
    target = resources.target
    family = family_of(target)
    gres = config.gres.get(family, f"gpu:{family}")
    return [
        f"--nodes={target.hosts}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={_cpus(resources)}",
        f"--mem={math.ceil(resources.memory_bytes / MIB)}M",
        *([f"--gres={gres}:{target.chips // target.hosts}"] if target.kind == "gpu" else []),
        *(["--exclusive"] if config.exclusive else []),
        *_topology(config, target),
    ]


def _topology(config: SlurmConfig, target: Device) -> Sequence[str]:
    if target.topology.domain != "rack" or target.hosts == 1:
        return []
    if config.racks == "block":
        return [f"--segment={target.topology.hosts_per_slice}"]
    return [f"--switches={target.topology.slices}@7-00:00:00"]  # slurmctld's max_switch_wait may be shorter


def _cpus(resources: Resources) -> int:
    """Of a host: `cpus` are a process's threads."""
    return resources.cpus * resources.target.processes_per_host


def _time(wall_s: float | None, kill_grace_s: float) -> Sequence[str]:
    return [] if wall_s is None else [f"--time={math.ceil((wall_s + kill_grace_s + _TIME_MARGIN_S) / 60)}"]


def _lane(config: SlurmConfig, resources: Resources) -> Sequence[str]:
    lane = config.lane(resources.band)
    named = {"partition": lane.partition, "qos": lane.qos, "account": lane.account}
    return [*(f"--{name}={value}" for name, value in named.items() if value is not None), *lane.arguments]
