"""Which engine a profile sends its jobs to: one config per engine, and how to connect to it. Imports no engine's client.

A config is a frozen model with a literal `kind`, and says with `refusal` what its engine can never run.
"""

from pathlib import Path
from typing import Annotated, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from infra.dispatch.backend import Backend, Handle, JobRejected
from infra.dispatch.engines.kubernetes.config import KubernetesConfig
from infra.dispatch.engines.local import LocalBackend
from infra.dispatch.engines.ray.config import RayConfig
from infra.dispatch.engines.slurm.config import SlurmConfig
from infra.dispatch.job import Attempt, Resources


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


def answer_of(engine: EngineConfig, backend: Backend) -> str:
    """Ask the engine something that only it can answer; a sentence that says which engine answered.

    Raises:
        EngineUnavailable, JobRejected: it does not answer, or is another one than the config says.
    """
    if isinstance(engine, SlurmConfig):
        from infra.dispatch.engines.slurm.commands import Commands

        found = Commands(engine).cluster()
        if found != engine.cluster:
            raise JobRejected(
                f"Slurm here is cluster {found!r}, the profile means {engine.cluster!r}; correct the backend's cluster or conf"
            )
    uid = uuid4().hex[:16]
    backend.poll(Handle(f"doctor-{uid[:12]}-a1", Attempt(1, uid)))  # nobody made it: an engine that answers knows nothing of it
    return f"{backend.identity} answers"


def refusal(engine: EngineConfig, resources: Resources) -> str | None:
    """Why no job with these resources can ever run on the engine; None if one may.

    Asked when a profile is loaded, so it asks no engine: it is judged from the config alone.
    """
    return engine.refusal(resources)
