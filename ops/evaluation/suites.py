"""Suites and models as YAML files: which tasks are run, of which models, and what they need. Imports nothing heavy."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ops.evaluation.yaml_file import YamlFileError, read_yaml

Engine = Literal["native", "lm_eval"]
NAME = r"^[a-z0-9][a-z0-9_-]*$"
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class SuiteError(ValueError):
    """A suite or a models file that can't be used; the message names file and field, and says what to do."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Evaluation(_Part):
    """One task of a suite.

    Attributes:
        name: how it is called in records and on the command line; the task file's own name if it isn't given.
        task: the task file, relative to the suite; `${NAME}` and `${NAME:-default}` are variables.
        limit: the first so many items; None for all.
        credentials: environment variables that the evaluation needs.
    """

    name: str | None = Field(default=None, pattern=NAME)
    task: str = Field(min_length=1)
    engine: Engine = "lm_eval"
    limit: int | None = Field(default=None, ge=1)
    credentials: tuple[str, ...] = ()


class Suite(_Part):
    """Evaluations that belong together; a model's place is told over a whole suite."""

    suite: str = Field(pattern=NAME)
    description: str = ""
    batch_tokens: int = Field(default=8192, ge=1, description="read at one time, filling included")
    evaluations: tuple[Evaluation, ...] = Field(min_length=1)


class ModelSource(_Part):
    """Where a model lies: an asset of the lineage, or a released folder (relative to the file, with variables)."""

    asset: Literal["hero", "cooldown", "release"] | None = None
    folder: str | None = Field(default=None, min_length=1)
    context_tokens: int | None = Field(default=None, ge=2, description="read at most so many; by default as many as it was trained on")
    description: str = ""
    credentials: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.asset is None) == (self.folder is None):
            raise ValueError("give either asset or folder, where the model lies, and not both")
        return self


class Models(_Part):
    """Models by the names under which their numbers are kept."""

    models: dict[str, ModelSource] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_names(self) -> Self:
        for name in self.models:
            if not re.fullmatch(NAME, name):
                raise ValueError(f"models.{name}: use lower-case letters, digits, '_' and '-'")
        return self


def load_suite(path: Path) -> Suite:
    """Raises SuiteError."""
    return _load(Suite, path, "suite")


def load_models(path: Path) -> Models:
    """Raises SuiteError."""
    return _load(Models, path, "models file")


def filled(text: str, path: Path, field: str) -> str:
    """A text with its variables filled in.

    Raises:
        SuiteError: one isn't set and has no default.
    """

    def value(found: re.Match[str]) -> str:
        name, default = found.groups()
        if (given := os.environ.get(name, default)) is None:
            raise SuiteError(f"{path}: {field}: the variable {name} is not set; export it, or write ${{{name}:-default}}")
        return given

    return VARIABLE.sub(value, text)


def require_credentials(names: tuple[str, ...], path: Path, field: str, environment: Mapping[str, str]) -> None:
    """Raises SuiteError for a variable that is missing or empty. Its value is never looked at, nor told."""
    for name in names:
        if not environment.get(name):
            raise SuiteError(f"{path}: {field}: the credential {name} is not in the environment; export it before the launch")


def _load[Loaded: BaseModel](kind: type[Loaded], path: Path, what: str) -> Loaded:
    try:
        return read_yaml(kind, path, what)
    except YamlFileError as error:
        raise SuiteError(str(error)) from None
