"""Evaluation items as files: finding them, fingerprinting them, and reading their texts. Standard library only,
so that a lineage can be planned where no data library is loaded."""

import csv
import gzip
import hashlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ops.decontaminate.config import EvaluationSet

_LABEL_BEFORE = re.compile(r"^\s*(?:question|q|problem|passage|context|input|sentence)\s*\d*\s*:\s*", re.IGNORECASE)
_LABEL_AFTER = re.compile(r"\s*\b(?:answer|a|output|solution)\s*:\s*$", re.IGNORECASE)


class EvaluationError(RuntimeError):
    """An evaluation set that must be guarded cannot be: it is missing, has changed, or yields no text."""


def files_of(evaluation: EvaluationSet) -> list[Path]:
    """The files of a set, sorted by their path below the root; hidden ones are metadata and left out."""
    root = Path(evaluation.root)
    if not root.is_dir():
        return []
    found = (path for path in root.glob(evaluation.glob) if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts))


def observe(evaluation: EvaluationSet) -> str:
    """A fingerprint of the files, for `EvaluationSet.observed`: 16 hex over names below the root and contents; "" without files."""
    digest = hashlib.sha256()
    found = files_of(evaluation)
    for path in found:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(evaluation.root).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()[:16] if found else ""


def items_of(path: Path) -> Iterator[Any]:
    """The items of a JSON Lines, JSON or CSV file, plain or .gz.

    Raises:
        EvaluationError: the file's kind is unknown or it is malformed; says which line.
    """
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        if kind == "jsonl":
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield _parsed(line, f"{path}, line {number}")
        elif kind == "json":
            content = _parsed(stream.read(), str(path))
            yield from content if isinstance(content, list) else [content]
        elif kind == "csv":
            with io.TextIOWrapper(stream, "utf-8-sig", newline="") as lines:
                yield from csv.DictReader(lines)
        else:
            raise EvaluationError(f"{path}: can't read items from a .{kind} file; use .jsonl, .json or .csv, plain or .gz")


def _parsed(content: bytes, where: str) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise EvaluationError(f"{where}: not JSON ({error}); repair the file or leave it out of the glob") from error


def texts_of(item: Any, field: str) -> Iterator[str]:
    """The texts at a dotted path; lists on the way and at its end are entered, numbers and nulls are no text."""
    name, _, rest = field.partition(".")
    if isinstance(item, list):
        for entry in item:
            yield from texts_of(entry, field)
    elif isinstance(item, dict) and field:
        yield from texts_of(item.get(name), rest)
    elif isinstance(item, str) and not field:
        yield item


def without_labels(text: str) -> str:
    """The text without the harness's own words around it ("Question:", "A:"), which a leak need not have."""
    return _LABEL_AFTER.sub("", _LABEL_BEFORE.sub("", text))
