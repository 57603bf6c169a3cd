"""Configuration of a program: frozen, closed, and honest about which fields change the result."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ProgramConfig(BaseModel):
    """Base of every program's configuration.

    Unknown keys are refused. Every field bears identity (it enters the recipe) unless it is declared
    with `execution_only`: worker counts, memory, paths, log levels.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def execution_only(default: Any = ..., **field: Any) -> Any:
    """Declare a field that changes how the work is done and never what comes out."""
    return Field(default, json_schema_extra={"execution_only": True}, **field)


def identity_of(config: BaseModel) -> dict[str, Any]:
    """The identity-bearing part of a config as plain JSON values, nested models included."""
    return {
        name: _plain(getattr(config, name))
        for name, field in type(config).model_fields.items()
        if not _is_execution_only(field.json_schema_extra)
    }


def _is_execution_only(extra: Any) -> bool:
    return isinstance(extra, Mapping) and extra.get("execution_only") is True


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return identity_of(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(_plain(item) for item in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a config value of type {type(value).__name__} has no canonical JSON form: {value!r}")
