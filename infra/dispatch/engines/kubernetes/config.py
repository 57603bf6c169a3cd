"""What a profile says of a Kubernetes cluster: where it is, what its nodes are called, and what each band may use there."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from infra.dispatch.engines.kubernetes import pools
from infra.dispatch.job import Band, Resources


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Toleration(_Frozen):
    """A taint that pods of a pool bear; the fields are those of `core/v1 Toleration`."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    seconds: int | None = Field(default=None, ge=0, description="how long a NoExecute taint is borne")


class NodePool(_Frozen):
    """The nodes that carry one device family.

    Everything has a usual value for the families of the device catalogue (NVIDIA's device plugin and feature discovery;
    GKE's TPU labels), so `h100: {}` in a profile is enough where the cluster follows them.
    """

    node_selector: Mapping[str, str] | None = Field(default=None, description="None for the family's usual labels")
    resource: str | None = Field(default=None, description="None for nvidia.com/gpu or google.com/tpu")
    tolerations: tuple[Toleration, ...] = ()
    shapes: Mapping[str, str] = Field(default_factory=dict, description="TPU topology by device name, where it isn't the usual one")


class Volume(_Frozen):
    """Something mounted into every pod."""

    name: str
    mount_path: str
    source: Mapping[str, Any] = Field(description="a volume source of core/v1, such as {persistentVolumeClaim: {claimName: data}}")
    read_only: bool = False


class TopologyLevels(_Frozen):
    """Node labels that Kueue's Topology object of this cluster lists. None where it has no such level."""

    near: str | None = Field(default=None, description="gangs are packed below one value of it where they fit, such as a network block")
    rack: str | None = Field(default=None, description="one NVLink domain, such as an NVL72 rack")


class KubernetesConfig(_Frozen):
    """A cluster with JobSet and, where queues are named, Kueue.

    Attributes:
        cluster: its name, equal in the profile of every machine that dispatches to it: equal names share jobs.
        context: of the kubeconfig; None for its current one.
        kubeconfig: a path; None for KUBECONFIG or the usual place. Unused with `in_cluster`.
        in_cluster: whether the dispatcher itself runs in a pod and uses its service account.
        queues: Kueue's LocalQueue for each band. Empty: no Kueue, every JobSet starts at once.
        workload_priorities: Kueue's WorkloadPriorityClass for each band.
        pod_priorities: PriorityClass for each band.
        sources: folder of Seaway's packages in the image, where it isn't installed there.
        env: set in every pod, below the job's own.
        env_secrets: Secrets whose keys become variables, such as the object store's credentials.
        kueue_version: of the API `kueue.x-k8s.io`, for reading workloads.
        start_patience_s: how long containers may fail to be created before the job is called impossible.
        lost_patience_s: how long a pod may be dying beyond its grace before its node is taken for lost.
        keep_s: how long a finished JobSet stays, with its pods and their logs.
        poll_s: between two looks at one job; more frequent polls are told the last one.
        request_timeout_s: of each request.
    """

    kind: Literal["kubernetes"] = "kubernetes"
    cluster: str
    image: str
    namespace: str = "default"
    context: str | None = None
    kubeconfig: str | None = None
    in_cluster: bool = False
    queues: Mapping[Band, str] = Field(default_factory=dict)
    workload_priorities: Mapping[Band, str] = Field(default_factory=dict)
    pod_priorities: Mapping[Band, str] = Field(default_factory=dict)
    pools: Mapping[str, NodePool] = Field(default_factory=lambda: {"cpu": NodePool()})
    topology: TopologyLevels = TopologyLevels()
    service_account: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    python: str = "python"
    sources: str | None = None
    env: Mapping[str, str] = Field(default_factory=dict)
    env_secrets: tuple[str, ...] = ()
    volumes: tuple[Volume, ...] = ()
    kueue_version: str = "v1beta1"
    start_patience_s: float = Field(default=600.0, ge=0)
    lost_patience_s: float = Field(default=300.0, ge=0)
    keep_s: int = Field(default=7 * 24 * 3600, ge=0)
    poll_s: float = Field(default=2.0, ge=0)
    request_timeout_s: float = Field(default=30.0, gt=0)

    def refusal(self, resources: Resources) -> str | None:
        """Why no job with these resources can ever run here, and what to choose instead; None if one may."""
        target = resources.target
        family = pools.family_of(target)
        pool = self.pools.get(family)
        if pool is None:
            known = ", ".join(sorted(self.pools))
            return f"cluster {self.cluster} has no pool for {target.name}; choose one of {known}, or add {family} to the backend's pools"
        if target.kind == "tpu" and pools.tpu_shape(target, pool.shapes) is None:
            return f"{target.name} has no usual TPU topology; name one in the backend's pools.{family}.shapes"
        if target.topology.domain == "rack" and target.hosts > 1 and not (self.queues and self.topology.rack):
            return f"{target.name} must lie within NVLink domains, which Kueue sees to; name queues and topology.rack in the backend"
        if self.queues and resources.band not in self.queues:
            return f"band {resources.band} has no queue in cluster {self.cluster}; add it to the backend's queues"
        return None
