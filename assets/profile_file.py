"""Profiles as files: YAML, `extends`, and variables of the environment. Gives plain values; what they mean is `assets.profile`'s.

    extends: demo              # a built-in profile by name, or a path beside this file
    sources: !override         # this section alone; without the word, sections are merged field by field
      pages: {...}

Fields of this file win. Lists are replaced, and so is a section whose `kind` differs: the fields of one kind mean
nothing to another.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_][A-Z0-9_]*)(:-(?P<default>[^}]*))?\}")  # `${stdlib}` and the like are a source's own
EXTENDS = "extends"


class ProfileError(ValueError):
    """A profile can't be used as it is; the message says which file, which field, and what to do."""


class _Override(dict[Any, Any]):
    """A section marked `!override`: what it extends is left out."""


class _Loader(yaml.SafeLoader):
    pass


def _override(loader: yaml.SafeLoader, node: yaml.Node) -> _Override:
    if not isinstance(node, yaml.MappingNode):
        raise yaml.constructor.ConstructorError(
            None, None, "!override stands before a section; lists and values are replaced anyway", node.start_mark
        )
    return _Override(loader.construct_mapping(node, deep=True))


_Loader.add_constructor("!override", _override)


@dataclass(frozen=True)
class ProfileFile:
    """A profile's values with everything merged and substituted. `path` is the file that was asked for."""

    path: Path
    values: dict[str, Any]


def read_profile(name: str) -> ProfileFile:
    """Read a built-in profile by name, or any by path (a name with a slash or ending in .yaml), with all that it extends.

    `${NAME}` and `${NAME:-default}` in its strings are taken from the environment; as in a shell, the default also
    stands in for an empty value. Only what is left after merging is looked up.

    Raises:
        ProfileError: no such profile, not YAML, a circle of `extends`, a variable without value.
    """
    path = _path_of(name, Path())
    values, texts = _merged_file(path, name, ())
    return ProfileFile(path, {key: _substituted(value, texts) for key, value in values.items()})


def merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the overrides put in, field by field; an override that is no section, or of another kind, replaces."""
    return {**base, **{key: _merged_value(base.get(key), value) for key, value in overrides.items()}}


def _merged_value(below: Any, value: Any) -> Any:
    if not isinstance(value, Mapping) or not isinstance(below, Mapping) or isinstance(value, _Override):
        return value
    return merged(below, value) if value.get("kind", below.get("kind")) == below.get("kind") else value


def _merged_file(path: Path, name: str, above: tuple[Path, ...]) -> tuple[dict[str, Any], dict[Path, str]]:
    """The values of a file and what it extends, and the text of each file that took part."""
    if path.resolve() in above:
        raise ProfileError(f"{path}: extends itself; remove one {EXTENDS!r} of the circle")
    text = _text_of(path, name)
    values = _parsed(path, text)
    if EXTENDS not in values:
        return values, {path: text}
    base_name = values.pop(EXTENDS)
    if not isinstance(base_name, str):
        raise ProfileError(f"{path}: {EXTENDS}: name one profile, such as demo (found {str(base_name)[:80]!r})")
    base, texts = _merged_file(_path_of(base_name, path.parent), base_name, (*above, path.resolve()))
    return merged(base, values), {path: text, **texts}


def _path_of(name: str, beside: Path) -> Path:
    return beside / name if "/" in name or name.endswith((".yaml", ".yml")) else _built_in(name)


def _built_in(name: str) -> Path:
    return Path(str(files("orchestration.profiles").joinpath(f"{name}.yaml")))


def built_in_names() -> list[str]:
    """Names of the profiles that come with Seaway; those with an underscore are only there to be extended."""
    return sorted(path.stem for path in _built_in("demo").parent.glob("[!_]*.yaml"))


def _text_of(path: Path, name: str) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise ProfileError(f"{path}: not text in UTF-8") from None
    except OSError as error:
        raise ProfileError(f"profile {name!r}: can't read {path}: {error.strerror}; built in are {', '.join(built_in_names())}") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        values = yaml.load(text, _Loader)  # a SafeLoader that knows one more word
    except yaml.YAMLError as error:
        raise ProfileError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ProfileError(f"{path}: not a profile: its top level must be sections such as name, storage and sources")
    return values


def _substituted(value: Any, texts: Mapping[Path, str]) -> Any:
    """The value with variables replaced in every string, and so not in comments."""
    if isinstance(value, Mapping):
        return {key: _substituted(item, texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_substituted(item, texts) for item in value]
    return VARIABLE.sub(lambda match: _variable(match, texts), value) if isinstance(value, str) else value


def _variable(match: re.Match[str], texts: Mapping[Path, str]) -> str:
    name, default = match["name"], match["default"]
    found = os.environ.get(name)
    if not found and default is not None:
        return default
    if found is None:
        path = next(path for path, text in texts.items() if match[0] in text)
        raise ProfileError(f"{path}: ${{{name}}} is not set; export {name}, or write ${{{name}:-default}}")
    return found
