"""Which engine a profile sends its jobs to: one config per engine, and how to connect to it. Imports no engine's client.

A config is a frozen model with a literal `kind`, and says with `refusal` what its engine can never run.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from infra.dispatch.backend import Backend
from infra.dispatch.engines.kubernetes.config import KubernetesConfig
from infra.dispatch.engines.local import LocalBackend
from infra.dispatch.engines.ray.config import RayConfig
from infra.dispatch.engines.slurm.config import SlurmConfig
from infra.dispatch.job import Resources


class LocalConfig(BaseModel):
    """This machine: one supervised process group per attempt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["local"] = "local"

    def refusal(self, resources: Resources) -> str | None:
        """Why no job with these resources can ever run here, and what to choose instead; None if one may."""
        target = resources.target
        if target.kind != "cpu" and target.hosts > 1:
            return f"backend local is one machine and {target.name} is {target.hosts} hosts; choose a smaller device or a cluster's backend"
        return None


EngineConfig = Annotated[LocalConfig | KubernetesConfig | RayConfig | SlurmConfig, Field(discriminator="kind")]


def connect(engine: EngineConfig, state: Path) -> Backend:
    """A client of the engine. Its library is imported here and no earlier, so that loading the lineage stays light.

    Args:
        state: a folder on a local disk, for an engine that has no memory of its own.
    """
    match engine:
        case LocalConfig():
            return LocalBackend(state)
        case KubernetesConfig():
            from infra.dispatch.engines.kubernetes.backend import KubernetesBackend

            return KubernetesBackend(engine)
        case SlurmConfig():
            from infra.dispatch.engines.slurm.backend import SlurmBackend

            return SlurmBackend(engine, state)
        case RayConfig():
            from infra.dispatch.engines.ray.backend import RayBackend

            return RayBackend(engine)


def refusal(engine: EngineConfig, resources: Resources) -> str | None:
    """Why no job with these resources can ever run on the engine; None if one may.

    Asked when a profile is loaded, so it asks no engine: it is judged from the config alone.
    """
    return engine.refusal(resources)
