"""The schema: made by migrations, equal to the models, upgraded on open wherever the package is installed."""

import re
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, make_url, text
from sqlalchemy.schema import CreateTable

import infra
from infra.catalog.catalog import Catalog
from infra.catalog.engine import CatalogError, migrations, open_engine, writing
from infra.catalog.tables import Table


def test_migrations_give_exactly_the_models_tables(url: str) -> None:
    engine = open_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Table.metadata) == []
        assert set(inspect(connection).get_table_names()) == {*Table.metadata.tables, "alembic_version"}
    engine.dispose()


def test_every_migration_can_be_taken_back(url: str) -> None:
    engine = open_engine(url)
    config = migrations()
    with writing(engine).begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
    engine.dispose()
    Catalog.open(url).close()


def test_a_migration_that_fails_leaves_the_old_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setattr("alembic.op.create_index", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(CatalogError, match="No space left on device; choose a database"):
        Catalog.open(url)
    with sqlite3.connect(f"{tmp_path}/catalog.db") as connection:
        assert connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == []
    connection.close()
    monkeypatch.undo()
    Catalog.open(url).close()


def test_many_processes_may_open_a_new_catalog_at_once(url: str) -> None:
    def open_it(_: int) -> None:
        Catalog.open(url).close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(open_it, range(8)))


def test_sqlite_is_opened_for_many_readers_and_patient_writers(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/catalog.db")
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 60_000
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
    engine.dispose()


def test_an_installed_package_migrates_from_its_own_files(tmp_path: Path) -> None:
    """As a wheel lays it out: the package alone, no checkout around it, another working directory."""
    installed = tmp_path / "site-packages"
    shutil.copytree(Path(infra.__path__[0]), installed / "infra", ignore=shutil.ignore_patterns("__pycache__"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    script = (
        f"import sys; sys.path.insert(0, {str(installed)!r})\n"
        "import infra.catalog.catalog as catalog\n"
        f"assert catalog.__file__.startswith({str(installed)!r})\n"
        "catalog.Catalog.open('sqlite:///here.db').close()"
    )
    subprocess.run([sys.executable, "-I", "-c", script], cwd=elsewhere, check=True)
    with sqlite3.connect(elsewhere / "here.db") as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
    connection.close()


def test_a_catalog_of_a_newer_seaway_says_what_to_do(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    engine = open_engine(url)
    with writing(engine).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(CatalogError, match=r"can't upgrade the catalog .*9999.*a newer Seaway wrote it.*seaway catalog rebuild"):
        Catalog.open(url)


def test_a_place_that_can_not_hold_a_catalog_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for database in (f"{tmp_path}/file/catalog.db", str(tmp_path)):
        with pytest.raises(CatalogError, match=rf"can't open the catalog sqlite:///{re.escape(database)}: .*; choose a database"):
            Catalog.open(f"sqlite:///{database}")


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("nosuchsql://here", r"can't open the catalog nosuchsql://here: .*keeps its catalog in SQLite .* or PostgreSQL \(postgresql://"),
        ("catalog.sqlite", r"can't open the catalog: 'catalog.sqlite' is none that SQLAlchemy reads; write sqlite:////folder"),
        (
            "postgresql+asyncpg://ada@db/x",
            r"the driver asyncpg is not installed: pip install 'seaway\[postgres\]', and write postgresql://",
        ),
        ("postgresql://ada:secret@127.0.0.1:1/x", r"ada:\*\*\*@127.0.0.1:1/x: .*refused.*; start its server or correct the URL"),
        ("mysql://ada@db/x", r"No module named 'MySQLdb'; Seaway keeps its catalog in"),
    ],
    ids=["no such dialect", "no URL", "no driver", "no server", "no support"],
)
def test_a_url_that_leads_nowhere_is_answered_with_one_that_does(url: str, answer: str) -> None:
    with pytest.raises(CatalogError, match=answer) as refused:
        Catalog.open(url)
    assert "secret" not in str(refused.value)


def test_a_missing_driver_is_answered_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(CatalogError, match=r"the driver psycopg2 is not installed: pip install 'seaway\[postgres\]'"):
        Catalog.open("postgresql://ada@db/x")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"not a database, but long enough to be taken for one" * 40)
    with pytest.raises(CatalogError, match="file is not a database"):
        Catalog.open(f"sqlite:///{tmp_path}/catalog.db")


def test_postgresql_gets_its_own_types() -> None:
    dialect = make_url("postgresql://").get_dialect()()
    ddl = {name: str(CreateTable(table).compile(dialect=dialect)) for name, table in Table.metadata.tables.items()}
    assert "payload JSONB NOT NULL" in ddl["artifacts"]
    assert "captured_at TIMESTAMP WITH TIME ZONE" in ddl["artifacts"]
    assert "size_bytes BIGINT NOT NULL" in ddl["files"]
    assert "token INTEGER NOT NULL" in ddl["attempts"]
