"""What was measured of an artifact and what was decided about it: append-only entries keyed by digest.

    {root}/.journal/{digest}/{uid}.json

Entries never enter an artifact, so a later evaluation can't change what an earlier one saw. They lie in storage,
so the catalog that indexes them can be rebuilt.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from infra.storage.objects import create_exclusive, list_names, read_or_none

JOURNAL_FOLDER = ".journal"


def _uid() -> str:
    return uuid4().hex[:16]


def _now() -> datetime:
    return datetime.now(UTC)


class Observation(BaseModel):
    """One measurement of the artifact with this digest: `name` says what, with its unit; `by` who or what measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["observation"] = "observation"
    digest: str
    name: str
    value: JsonValue
    by: str
    uid: str = Field(default_factory=_uid)
    at: datetime = Field(default_factory=_now)


class Decision(BaseModel):
    """One decision about the artifact with this digest: what was asked (`name`), the outcome, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["decision"] = "decision"
    digest: str
    name: str
    outcome: str
    reason: str
    by: str
    uid: str = Field(default_factory=_uid)
    at: datetime = Field(default_factory=_now)


Entry = Annotated[Observation | Decision, Field(discriminator="kind")]
_entry: TypeAdapter[Observation | Decision] = TypeAdapter(Entry)


def append(root: str, entry: Observation | Decision) -> None:
    """Keep an entry for good. Appending the same entry again changes nothing.

    Raises:
        ValueError: another entry has this uid.
    """
    url = f"{_journal(root)}/{entry.digest}/{entry.uid}.json"
    if not create_exclusive(url, entry.model_dump_json().encode()):
        raise ValueError(f"{url} holds another entry; entries are never changed, so append one with a fresh uid")


def entries(root: str, digest: str | None = None) -> Iterator[Observation | Decision]:
    """Every entry about one digest, or about all, by (digest, uid)."""
    for found in (digest,) if digest else list_names(_journal(root)):
        for name in list_names(f"{_journal(root)}/{found}"):
            stored = read_or_none(f"{_journal(root)}/{found}/{name}") if not name.startswith(".") else None
            if stored is not None:
                yield _entry.validate_json(stored)


def _journal(root: str) -> str:
    return f"{root if root.endswith('://') else root.rstrip('/')}/{JOURNAL_FOLDER}"
