"""What catalog queries answer with: frozen values, free of the database."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from infra.catalog.tables import ArtifactRow, AttemptRow, DecisionRow, ObservationRow, Table


class CatalogArtifact(BaseModel):
    """One published artifact. Who, when and where are None if its provenance is missing."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    url: str
    asset: str
    partition: str | None
    recipe: str
    digest: str
    program: str | None
    version: str | None
    payload: dict[str, Any]
    stats: dict[str, Any]
    directory: str
    file_count: int
    size_bytes: int
    captured_at: datetime | None
    code_commit: str | None
    user: str | None
    host: str | None


class Relative(BaseModel):
    """A digest that is `distance` edges away in the lineage, and the artifacts that have it (none if not catalogued)."""

    model_config = ConfigDict(frozen=True)

    digest: str
    distance: int
    artifacts: tuple[CatalogArtifact, ...]


class Recorded(BaseModel):
    """How much a rebuild found in storage."""

    model_config = ConfigDict(frozen=True)

    artifacts: int
    attempts: int
    observations: int
    decisions: int

    @classmethod
    def of(cls, counts: Mapping[type[Table], int]) -> Self:
        return cls(
            artifacts=counts.get(ArtifactRow, 0),
            attempts=counts.get(AttemptRow, 0),
            observations=counts.get(ObservationRow, 0),
            decisions=counts.get(DecisionRow, 0),
        )
