"""Walks along the lineage, by digest: what an artifact was made from, and what was made from it.

Breadth first with a set of seen digests, because digests can form a cycle: a program that changes nothing gives its
input's digest back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from infra.catalog.records import CatalogArtifact, Relative
from infra.catalog.tables import ArtifactRow, InputRow

DIGESTS_PER_QUERY = 500  # SQLite allowed 999 variables before 3.32

Edges = Callable[[list[str]], Select[str]]


def upstream_of(session: Session, digest: str) -> list[Relative]:
    """Ancestors, nearest first, then by digest."""
    return _walk(session, digest, _inputs_of)


def downstream_of(session: Session, digest: str) -> list[Relative]:
    """Descendants, nearest first, then by digest."""
    return _walk(session, digest, _outputs_of)


def records_of(session: Session, digests: Iterable[str]) -> dict[str, list[CatalogArtifact]]:
    """The artifacts that have each digest, by address."""
    found: dict[str, list[CatalogArtifact]] = defaultdict(list)
    for chunk in _chunks(sorted(digests)):
        for row in session.scalars(select(ArtifactRow).where(ArtifactRow.digest.in_(chunk)).order_by(ArtifactRow.url)):
            found[row.digest].append(CatalogArtifact.model_validate(row))
    return dict(found)


def _walk(session: Session, digest: str, edges: Edges) -> list[Relative]:
    distances = {digest: 0}
    frontier = [digest]
    while frontier:
        reached = {found for chunk in _chunks(frontier) for found in session.scalars(edges(chunk))}
        distance = distances[frontier[0]] + 1
        frontier = sorted(reached - distances.keys())
        distances |= dict.fromkeys(frontier, distance)
    del distances[digest]
    records = records_of(session, distances)
    return [Relative(digest=found, distance=steps, artifacts=tuple(records.get(found, ()))) for found, steps in distances.items()]


def _inputs_of(digests: list[str]) -> Select[str]:
    return select(InputRow.digest).join(ArtifactRow, ArtifactRow.url == InputRow.url).where(ArtifactRow.digest.in_(digests))


def _outputs_of(digests: list[str]) -> Select[str]:
    return select(ArtifactRow.digest).join(InputRow, ArtifactRow.url == InputRow.url).where(InputRow.digest.in_(digests))


def _chunks(digests: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(digests), DIGESTS_PER_QUERY):
        yield digests[start : start + DIGESTS_PER_QUERY]
