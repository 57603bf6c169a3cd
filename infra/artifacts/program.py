"""A program: typed config, version and a pure function from input artifacts to one output artifact.

    @program(version="1")
    def normalize(config: NormalizeConfig, extracted: Artifact, out: Writer) -> NormalizeStats: ...

Parameters between `config` and `out` are the inputs: `Artifact` for one, `Artifacts` for one per
partition of an upstream. The return value is a frozen model of counters that becomes the manifest's stats.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.config import ProgramConfig
from infra.artifacts.writer import Writer


class Stats(BaseModel):
    """Base of what a program returns: counters and measures of the *result*, never of the execution.

    Stats lie in the manifest, so they must be as reproducible as the bytes: no seconds, no host names.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Program:
    """A program and what its signature says about it. Call it like the function it wraps."""

    path: str
    version: str
    config_type: type[ProgramConfig]
    inputs: Mapping[str, type]
    function: Callable[..., Stats]

    @property
    def name(self) -> str:
        return self.path.partition(":")[2]

    def __call__(self, config: ProgramConfig, *args: Any, **kwargs: Any) -> Any:
        return self.function(config, *args, **kwargs)


def program(*, version: str) -> Callable[[Callable[..., Stats]], Program]:
    """Declare a program. Raise the version whenever equal inputs may give other bytes.

    Raises:
        TypeError: the signature is not `(config, input..., out) -> Stats`.
    """

    def declare(function: Callable[..., Stats]) -> Program:
        hints = get_type_hints(function)
        parameters = list(inspect.signature(function).parameters)
        where = f"{function.__module__}:{function.__qualname__}"
        if parameters[:1] != ["config"] or parameters[-1:] != ["out"] or hints.get("out") is not Writer:
            raise TypeError(f"{where}: a program takes (config, input..., out: Writer), not {parameters}")
        inputs = {name: hints[name] for name in parameters[1:-1]}
        if wrong := {name: hint for name, hint in inputs.items() if hint not in (Artifact, Artifacts)}:
            raise TypeError(f"{where}: inputs are Artifact or Artifacts, not {wrong}")
        return Program(where, version, hints["config"], inputs, function)

    return declare


def load_program(path: str) -> Program:
    """Import a program by `module:name`."""
    module, _, name = path.partition(":")
    found = getattr(importlib.import_module(module), name)
    if not isinstance(found, Program):
        raise TypeError(f"{path} is a {type(found).__name__}, not a program; decorate it with @program")
    return found
