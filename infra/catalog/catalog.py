"""The catalog: a queryable index of storage. It holds nothing that storage does not, so it can be deleted and rebuilt."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from infra.artifacts.journal import Decision, Observation, entries
from infra.artifacts.lease import AttemptRecord
from infra.artifacts.store import ArtifactStore
from infra.catalog.engine import lock_writers, open_engine, writing
from infra.catalog.lineage import downstream_of, records_of, upstream_of
from infra.catalog.records import CatalogArtifact, Recorded, Relative
from infra.catalog.rows import rows_of_address, rows_of_entry
from infra.catalog.tables import ArtifactRow, AttemptRow, DecisionRow, FileRow, InputRow, ObservationRow, Table

TABLES_OF_AN_ADDRESS: tuple[type[FileRow] | type[InputRow] | type[AttemptRow] | type[ArtifactRow], ...] = (
    FileRow,
    InputRow,
    AttemptRow,
    ArtifactRow,
)


class Catalog:
    """Queries over artifacts, attempts, observations and decisions, on SQLite or PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writing = writing(engine)

    @classmethod
    def open(cls, url: str) -> Self:
        """Open (and where needed create or upgrade) the catalog at a SQLAlchemy URL, such as `sqlite:////data/catalog.db`.

        Raises:
            CatalogError: it can't be opened or upgraded.
        """
        return cls(open_engine(url))

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def record(self, store: ArtifactStore, asset: str, partition: str | None, recipe: str) -> None:
        """Index what storage holds at one address: the artifact, if published, and every attempt. Repeating it is harmless."""
        self._index(store, asset, partition, recipe)

    def record_entry(self, entry: Observation | Decision) -> None:
        """Index one entry of the journal. Append it to storage first: `infra.artifacts.journal.append`."""
        with self._write() as session:
            session.merge(rows_of_entry(entry))

    def rebuild(self, store: ArtifactStore) -> Recorded:
        """Index everything storage holds, and forget what it no longer holds. Recording may go on meanwhile.

        Raises:
            CorruptArtifactError: names the manifest that can't be read. What was indexed before it stays.
        """
        stale_addresses, stale_entries = self._keys()
        counts: Counter[type[Table]] = Counter()
        for asset, partition, recipe in store.addresses():
            counts.update(type(row) for row in self._index(store, asset, partition, recipe))
            stale_addresses.discard(store.address(asset, partition, recipe))
        for entry in entries(store.root):
            self.record_entry(entry)
            counts[ObservationRow if isinstance(entry, Observation) else DecisionRow] += 1
            stale_entries.discard(entry.uid)
        with self._write() as session:
            for address in stale_addresses:
                _forget(session, address)
            for uid in stale_entries:
                session.execute(delete(ObservationRow).where(ObservationRow.uid == uid))
                session.execute(delete(DecisionRow).where(DecisionRow.uid == uid))
        return Recorded.of(counts)

    def by_digest(self, digest: str) -> list[CatalogArtifact]:
        """Every artifact with these bytes: more than one where different recipes gave equal bytes."""
        with self._read() as session:
            return records_of(session, [digest]).get(digest, [])

    def by_asset(self, asset: str, partition: str | None = None) -> list[CatalogArtifact]:
        """Every artifact of an asset, or of one partition of it, newest first."""
        query = select(ArtifactRow).where(ArtifactRow.asset == asset)
        if partition is not None:
            query = query.where(ArtifactRow.partition == partition)
        with self._read() as session:
            found = session.scalars(query.order_by(ArtifactRow.captured_at.desc().nulls_last(), ArtifactRow.url))
            return [CatalogArtifact.model_validate(row) for row in found]

    def upstream(self, digest: str) -> list[Relative]:
        """What an artifact was made from, nearest first, down to the raw sources. A digest nobody catalogued has no artifacts."""
        with self._read() as session:
            return upstream_of(session, digest)

    def downstream(self, digest: str) -> list[Relative]:
        """What was made from an artifact, nearest first."""
        with self._read() as session:
            return downstream_of(session, digest)

    def attempts(self, asset: str, partition: str | None = None) -> list[AttemptRecord]:
        """Every attempt at an asset (at one partition, where given), by address and token."""
        query = select(AttemptRow).where(AttemptRow.asset == asset)
        if partition is not None:
            query = query.where(AttemptRow.partition == partition)
        with self._read() as session:
            found = session.scalars(query.order_by(AttemptRow.url, AttemptRow.token))
            return [AttemptRecord(token=row.token, uid=row.uid, extra=row.extra, ended=row.ended, detail=row.detail) for row in found]

    def observations(self, digest: str) -> list[Observation]:
        """Every measurement of an artifact, oldest first."""
        query = select(ObservationRow).where(ObservationRow.digest == digest).order_by(ObservationRow.at, ObservationRow.uid)
        with self._read() as session:
            return [Observation.model_validate(row, from_attributes=True) for row in session.scalars(query)]

    def decisions(self, digest: str) -> list[Decision]:
        """Every decision about an artifact, oldest first."""
        query = select(DecisionRow).where(DecisionRow.digest == digest).order_by(DecisionRow.at, DecisionRow.uid)
        with self._read() as session:
            return [Decision.model_validate(row, from_attributes=True) for row in session.scalars(query)]

    def _index(self, store: ArtifactStore, asset: str, partition: str | None, recipe: str) -> list[Table]:
        with self._write() as session:
            rows = rows_of_address(store, asset, partition, recipe)  # read under the lock, so an older reading never overwrites a newer
            _forget(session, store.address(asset, partition, recipe))
            session.add_all(rows)
        return rows

    def _keys(self) -> tuple[set[str], set[str]]:
        with self._read() as session:
            addresses = {*session.scalars(select(ArtifactRow.url)), *session.scalars(select(AttemptRow.url))}
            return addresses, {*session.scalars(select(ObservationRow.uid)), *session.scalars(select(DecisionRow.uid))}

    @contextmanager
    def _read(self) -> Iterator[Session]:
        with Session(self._engine) as session:
            yield session

    @contextmanager
    def _write(self) -> Iterator[Session]:
        with Session(self._writing) as session, session.begin():
            lock_writers(session.connection())
            yield session


def _forget(session: Session, address: str) -> None:
    for table in TABLES_OF_AN_ADDRESS:
        session.execute(delete(table).where(table.url == address))
