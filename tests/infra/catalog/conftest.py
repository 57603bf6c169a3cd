"""Databases to try the catalog on: files of SQLite, and databases of one PostgreSQL server."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.infra.catalog.postgres_server import Server, serving


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Gives the URL of a database that holds nothing, another at each call."""
    if request.param == "sqlite":
        numbers = count()
        return lambda: f"sqlite:///{tmp_path}/catalog/catalog-{next(numbers)}.db"
    server: Server = request.getfixturevalue("postgres")
    return lambda: server.new_database().replace("postgresql://", "postgresql+psycopg2://")


@pytest.fixture
def url(new_url: Callable[[], str]) -> str:
    return new_url()
