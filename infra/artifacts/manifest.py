"""The manifest: what an artifact is made of. Its file rows are the artifact's digest."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

MANIFEST_NAME = ".artifact.json"
PROVENANCE_NAME = ".provenance.json"


class FileEntry(BaseModel):
    """One file: name relative to the attempt's directory, size in bytes, SHA-256 of its content in hex."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    size: int
    sha256: str


class Manifest(BaseModel):
    """Everything a reader must know; written once, by one conditional create.

    `payload` is what the recipe hashes (program, version, config identity, input digests): two payloads
    can be diffed by a person. `directory` is the attempt's folder that holds the files.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1  # of this file; raised when an older reader would misunderstand it
    recipe: str
    payload: dict[str, Any]
    digest: str
    directory: str
    files: tuple[FileEntry, ...]
    stats: dict[str, Any]


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_of(files: Iterable[FileEntry]) -> str:
    """SHA-256 over the sorted (name, size, content hash) rows, as 64 hex characters."""
    rows = sorted((entry.name, entry.size, entry.sha256) for entry in files)
    return hashlib.sha256(canonical_json(rows)).hexdigest()
