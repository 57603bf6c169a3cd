"""What a profile says of a Ray cluster: where its Jobs API is, what its nodes are called, and what each band may use there."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from infra.dispatch.job import Band, Resources

Strategy = Literal["STRICT_SPREAD", "SPREAD", "PACK", "STRICT_PACK"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodePool(_Frozen):
    """The nodes that carry one device family. `h100: {}` is what Ray finds out by itself, and needs not be written.

    Attributes:
        resource: of which a host holds as many as it has chips; None for Ray's own `GPU` or `TPU`.
        resources: whatever else a host of a gang takes, such as a custom resource that guards a licence.
        labels: that a node must bear; None for the family's usual ones (`ray.io/accelerator-type`, `ray.io/tpu-pod-type`).
        domain_label: nodes of one slice or NVLink rack bear one value of it; None for the usual ones
            (`ray.io/tpu-slice-name`, `ray.io/gpu-domain`), empty where the cluster's nodes bear none.
    """

    resource: str | None = None
    resources: Mapping[str, float] = Field(default_factory=dict)
    labels: Mapping[str, str] | None = None
    domain_label: str | None = None


class RayConfig(_Frozen):
    """A cluster, by its Jobs API. Dispatchers need no Ray, the cluster's image does.

    Attributes:
        address: of the dashboard, such as `http://ray-head:8265`.
        cluster: its name where machines reach it by different addresses; equal names share jobs. None for the address.
        token_env: variable that holds the cluster's token here; sent where it is set.
        headers: sent with every request, for a proxy before the cluster.
        strategy: how the hosts of a gang lie on nodes; None for one node a host (STRICT_SPREAD).
        pools: by device family, where nodes differ from what Ray finds out by itself.
        bands: labels of the nodes that a band may use. Ray preempts nobody, so bands share nodes only in the order of arrival.
        on_demand_labels: of nodes that nobody takes away, for jobs that are not preemptible.
        region_label: compared with a job's region.
        autoscaled: nodes may join on demand, so a job that the present ones can't hold waits and is not refused.
        python: the interpreter on the cluster.
        sources: folder of Seaway's packages on the cluster, where they aren't installed there.
        env: set in driver and hosts, below the job's own. Seen in Ray's dashboard: no secrets.
        request_timeout_s: of each request.
    """

    kind: Literal["ray"] = "ray"
    address: str = Field(pattern=r"^https?://[^/]+")
    cluster: str | None = None
    token_env: str = "RAY_AUTH_TOKEN"
    headers: Mapping[str, str] = Field(default_factory=dict)
    strategy: Strategy | None = None
    pools: Mapping[str, NodePool] = Field(default_factory=dict)
    bands: Mapping[Band, Mapping[str, str]] = Field(default_factory=dict)
    on_demand_labels: Mapping[str, str] = Field(default_factory=dict)
    region_label: str = "ray.io/availability-region"
    autoscaled: bool = False
    python: str = "python"
    sources: str | None = None
    env: Mapping[str, str] = Field(default_factory=dict)
    request_timeout_s: float = Field(default=30.0, gt=0)

    @property
    def name(self) -> str:
        return self.cluster or self.address.rstrip("/")

    def refusal(self, resources: Resources) -> str | None:
        """Why no job with these resources can ever run here, and what to choose instead; None if one may."""
        target = resources.target
        if target.topology.slices > 1:
            return (
                f"Ray cluster {self.name} can't place {target.name}: it spans {target.topology.slices} NVLink racks, and a placement group "
                f"lies in one; choose at most {target.topology.hosts_per_slice} hosts, or backend slurm or kubernetes"
            )
        return None
