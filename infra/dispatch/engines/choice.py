"""Which engine a profile sends its jobs to: one config per engine, and how to connect to it. Imports no engine's client."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from infra.dispatch.backend import Backend
from infra.dispatch.engines.local import LocalBackend


class LocalConfig(BaseModel):
    """This machine: one supervised process group per attempt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["local"] = "local"


EngineConfig = LocalConfig


def connect(engine: EngineConfig, state: Path) -> Backend:
    """A client of the engine.

    Args:
        state: a folder on a local disk, for an engine that has no memory of its own.
    """
    return LocalBackend(state)
