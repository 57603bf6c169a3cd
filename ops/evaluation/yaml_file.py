"""YAML files that people write - suites, models, tasks: read strictly, and what is wrong is told by file, line and field."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError


class YamlFileError(ValueError):
    """A file that can't be used as it is; the message names file and field, and says what to do."""


def read_yaml[Read: BaseModel](kind: type[Read], path: Path, what: str) -> Read:
    """A file's fields, validated.

    Args:
        what: the file is, for the message: "task".

    Raises:
        YamlFileError: it can't be read, is no YAML, writes a field twice, or its fields don't fit.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise YamlFileError(f"{path}: can't be read ({error.strerror}); correct the path of the {what}") from None
    except UnicodeDecodeError as error:
        raise YamlFileError(f"{path}: can't be read ({error}); save it as UTF-8") from None
    try:
        _require_each_field_once(path, yaml.compose(text, Loader=yaml.SafeLoader))
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise YamlFileError(f"{path}{_line_of(error)}: no YAML of plain values ({_problem_of(error)}); correct it") from None
    if not isinstance(values, dict):
        raise YamlFileError(f"{path}: it is {'empty' if values is None else 'no list of fields'}; write the fields of a {what}")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise YamlFileError(f"{path}: {'; '.join(_sentences([dict(found) for found in error.errors()]))}") from None


def _require_each_field_once(path: Path, node: yaml.Node | None) -> None:
    """YAML's reader takes the last of two equal fields, and what the first one said is lost without a word."""
    seen, waiting = set[int](), [node]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, yaml.SequenceNode):
            waiting += one.value
        if isinstance(one, yaml.MappingNode):
            names = set[str]()
            for key, value in one.value:
                if isinstance(key, yaml.ScalarNode) and key.value in names:
                    line = key.start_mark.line + 1
                    raise YamlFileError(f"{path}, line {line}: {key.value} is written twice; only one of them would count, remove one")
                names.add(str(key.value))
                waiting.append(value)


def _line_of(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return "" if mark is None else f", line {mark.line + 1}"


def _problem_of(error: yaml.YAMLError) -> str:
    return " ".join(str(getattr(error, "problem", None) or error).split())


def _sentences(problems: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One for each problem. A list whose item is wrong is also told to be too short: that is the same problem again."""
    places = [problem["loc"] for problem in problems]
    for problem in problems:
        place = problem["loc"]
        if not any(len(other) > len(place) and other[: len(place)] == place for other in places):
            yield _sentence(problem)


def _sentence(problem: Mapping[str, Any]) -> str:
    where, given = ".".join(str(part) for part in problem["loc"]), problem["input"]
    match problem["type"]:
        case "extra_forbidden":
            return f"{where}: unknown field; check its spelling or remove it"
        case "missing":
            return f"{where}: it is missing; give it"
        case "too_short":
            return f"{where}: it is empty; give at least {problem['ctx']['min_length']}"
        case "tuple_type":
            return f"{where}: must be a list (found {str(given)[:80]!r}); write it in [ ]"
        case "model_type" | "dict_type":
            return f"{where}: must be fields with values (found {str(given)[:80]!r}); write them as name: value"
        case _:
            what = problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be").replace("String should", "must")
            said = f"{where}: {what}".removeprefix(": ")
            return said if isinstance(given, Mapping | None) else f"{said} (found {str(given)[:80]!r})"
