"""The recipe: 16 hex characters that say what an artifact is made of, before it is made."""

import hashlib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from infra.artifacts.config import identity_of
from infra.artifacts.manifest import canonical_json

InputDigests = Mapping[str, str | Mapping[str, str]]
"""Input name -> digest, or partition key -> digest where the program takes one artifact per partition."""


def payload_of(program: str, version: str, config: BaseModel, inputs: InputDigests) -> dict[str, Any]:
    """What the recipe hashes: program name and version, config identity, input digests.

    Paths, resources, backends, worker counts, regions and times are not here, so they can't move a recipe.
    """
    return {
        "program": program,
        "version": version,
        "config": identity_of(config),
        "inputs": {name: value if isinstance(value, str) else dict(value) for name, value in inputs.items()},
    }


def recipe_of(payload: Mapping[str, Any]) -> str:
    """First 16 hex characters of the SHA-256 of the payload's canonical JSON."""
    return hashlib.sha256(canonical_json(payload)).hexdigest()[:16]
