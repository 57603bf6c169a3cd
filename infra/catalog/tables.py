"""The catalog's tables. Natural keys only, so that a rebuilt catalog equals an incrementally filled one row by row."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, ForeignKey, MetaData, Text, TypeDecorator
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Json = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime in UTC; SQLite, which has no time zones, gets and gives naive UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Table(DeclarativeBase):
    metadata = MetaData(
        naming_convention={  # constraints have equal names on every database, so that migrations can address them
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {str: Text, datetime: UtcDateTime, dict[str, Any]: Json, Any: Json}  # noqa: RUF012 - SQLAlchemy's name


class ArtifactRow(Table):
    """One published artifact; `url` is its address."""

    __tablename__ = "artifacts"

    url: Mapped[str] = mapped_column(primary_key=True)
    asset: Mapped[str] = mapped_column(index=True)
    partition: Mapped[str | None]
    recipe: Mapped[str] = mapped_column(index=True)
    digest: Mapped[str] = mapped_column(index=True)
    program: Mapped[str | None]
    version: Mapped[str | None]
    payload: Mapped[dict[str, Any]]
    stats: Mapped[dict[str, Any]]
    directory: Mapped[str]
    file_count: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    captured_at: Mapped[datetime | None]
    code_commit: Mapped[str | None]
    user: Mapped[str | None]
    host: Mapped[str | None]


class FileRow(Table):
    """One file of an artifact."""

    __tablename__ = "files"

    url: Mapped[str] = mapped_column(ForeignKey("artifacts.url", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(index=True)


class InputRow(Table):
    """One edge of the lineage: the artifact at `url` was made from the artifact with `digest`. No partition is ''."""

    __tablename__ = "inputs"

    url: Mapped[str] = mapped_column(ForeignKey("artifacts.url", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    partition: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(index=True)


class AttemptRow(Table):
    """One attempt at an address, whether or not anything was published there."""

    __tablename__ = "attempts"

    url: Mapped[str] = mapped_column(primary_key=True)
    token: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    asset: Mapped[str] = mapped_column(index=True)
    partition: Mapped[str | None]
    recipe: Mapped[str]
    uid: Mapped[str] = mapped_column(index=True)
    extra: Mapped[dict[str, Any]]
    ended: Mapped[str | None]
    detail: Mapped[Any | None]


class ObservationRow(Table):
    """One measurement of the artifact with `digest`."""

    __tablename__ = "observations"

    uid: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(index=True)
    name: Mapped[str] = mapped_column(index=True)
    value: Mapped[Any | None]
    by: Mapped[str]
    at: Mapped[datetime]


class DecisionRow(Table):
    """One decision about the artifact with `digest`."""

    __tablename__ = "decisions"

    uid: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(index=True)
    name: Mapped[str] = mapped_column(index=True)
    outcome: Mapped[str]
    reason: Mapped[str]
    by: Mapped[str]
    at: Mapped[datetime]
