"""A gang as Ray places it: one placement group, a bundle a host. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from infra.dispatch.devices import Device
from infra.dispatch.engines.ray.config import NodePool, RayConfig, Strategy
from infra.dispatch.job import GIB, Job

NODE_LABEL = "ray.io/node-id"
_RESOURCES: Mapping[str, str] = MappingProxyType({"gpu": "GPU", "tpu": "TPU"})
_DOMAIN_LABELS: Mapping[str, str] = MappingProxyType({"slice": "ray.io/tpu-slice-name", "rack": "ray.io/gpu-domain"})


class Gang(BaseModel):
    """What the driver asks Ray for.

    Attributes:
        bundle: resource -> amount that each host of the gang gets, such as `{"CPU": 8, "GPU": 8, "memory": 1e11}`.
        labels: that each host's node bears.
        domain_label: all the hosts' nodes bear one value of it; None where any nodes will do.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    hosts: int
    bundle: dict[str, float]
    strategy: Strategy
    labels: dict[str, str]
    domain_label: str | None


@dataclass(frozen=True)
class Node:
    """A node that is, or was, part of the cluster."""

    resources: Mapping[str, float]
    labels: Mapping[str, str]


def gang_of(job: Job, config: RayConfig) -> Gang:
    """The placement of a job. `memory_bytes` is of a host, `cpus` of each of its processes."""
    resources, target = job.resources, job.resources.target
    family = re.sub(r"(x|-)\d+$", "", target.name)
    pool = config.pools.get(family, NodePool())
    bundle = {"CPU": float(resources.cpus * target.processes_per_host), "memory": float(resources.memory_bytes), **pool.resources}
    if target.kind != "cpu":
        bundle[pool.resource or _RESOURCES[target.kind]] = float(target.chips // target.hosts)
    labels = dict(_usual_labels(family, target) if pool.labels is None else pool.labels)
    labels |= config.bands.get(resources.band, {})
    labels |= {} if resources.preemptible else config.on_demand_labels
    labels |= {} if resources.region is None else {config.region_label: resources.region}
    return Gang(
        hosts=target.hosts,
        bundle=bundle,
        strategy=config.strategy or "STRICT_SPREAD",
        labels=labels,
        domain_label=_domain_label(target, pool),
    )


def shortage(gang: Gang, nodes: Sequence[Node]) -> str | None:
    """Why these nodes could not hold the gang even if nothing else ran on them; None if they could.

    Nodes that died count too: a replacement may join, and a lost node must not make its job impossible.
    """
    rooms = [_room(gang, node) for node in nodes]
    able = sum(room > 0 for room in rooms)
    holds = able >= gang.hosts if gang.strategy == "STRICT_SPREAD" else sum(rooms) >= gang.hosts
    if holds:
        return None
    wanted = ", ".join(_amount(name, amount) for name, amount in gang.bundle.items())
    where = "".join(f", label {key}={value}" for key, value in gang.labels.items())
    apart = " of its own" if gang.strategy == "STRICT_SPREAD" else ""
    return f"{gang.hosts} times a node{apart} with {wanted}{where}, and {able} of its {len(nodes)} nodes are such"


def _amount(name: str, amount: float) -> str:
    return f"{amount / GIB:g} GiB memory" if name == "memory" else f"{amount:g} {name}"


def _room(gang: Gang, node: Node) -> int:
    """How many bundles of the gang the whole node holds."""
    if any(node.labels.get(key) != value for key, value in gang.labels.items()):
        return 0
    return min(int(node.resources.get(name, 0.0) // amount) for name, amount in gang.bundle.items() if amount)


def _usual_labels(family: str, target: Device) -> dict[str, str]:
    """What Ray's node start-up finds out by itself on GPU machines and on Google's TPU machines."""
    match target.kind:
        case "gpu":
            return {"ray.io/accelerator-type": family.upper()}
        case "tpu":
            return {"ray.io/tpu-pod-type": target.name.replace("v5e-", "v5litepod-")}
        case _:
            return {}


def _domain_label(target: Device, pool: NodePool) -> str | None:
    domain = target.topology.domain
    if domain is None or target.hosts == 1:
        return None
    usual = _DOMAIN_LABELS[domain]
    return (usual if pool.domain_label is None else pool.domain_label) or None
