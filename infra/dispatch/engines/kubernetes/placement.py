"""Where the hosts of a gang may lie, in the words of Kueue's topology-aware scheduling and of JobSet. Pure."""

from infra.dispatch.devices import Device
from infra.dispatch.engines.kubernetes.config import TopologyLevels

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
SLICE_REQUIRED = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def of_jobset(target: Device) -> dict[str, str]:
    """Annotations of the set: on GKE a TPU slice of several hosts is one node pool, which no other set may share."""
    return {EXCLUSIVE: "cloud.google.com/gke-nodepool"} if target.topology.domain == "slice" and target.hosts > 1 else {}


def of_pods(target: Device, levels: TopologyLevels) -> dict[str, str]:
    """Annotations of the pods: each group of hosts within one rack where the device asks for it, all of them near if they fit."""
    if target.hosts == 1 or target.topology.domain == "slice":
        return {}
    near = {} if levels.near is None else {PREFERRED: levels.near}
    if target.topology.domain is None or levels.rack is None:
        return near
    if target.topology.slices == 1:
        return {REQUIRED: levels.rack}
    return {**near, SLICE_REQUIRED: levels.rack, SLICE_SIZE: str(target.topology.hosts_per_slice)}
