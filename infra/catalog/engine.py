"""Opening the catalog's database: connection settings, and the schema brought to the newest revision."""

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

BUSY_TIMEOUT_MS = 60_000  # a writer reads one address from storage under the lock, ~0.5 s on S3: a queue of a hundred must wait, not fail
WRITERS_LOCK = 7_293_561  # arbitrary, but the same for every Seaway process that shares a PostgreSQL server


class CatalogError(RuntimeError):
    """The catalog can't be opened or upgraded. It is only an index: deleting and rebuilding it loses nothing."""


def open_engine(url: str) -> Engine:
    """An engine on a database whose schema is the newest.

    Raises:
        CatalogError: the URL or its driver is wrong, the database can't be opened, or a newer Seaway wrote it.
    """
    parsed = _parsed(url)
    shown = parsed.render_as_string(hide_password=True)
    try:
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(parsed)
        if parsed.get_backend_name() == "sqlite":
            _prepare_sqlite(engine)
        _upgrade(engine)
    except (NoSuchModuleError, ImportError) as error:
        raise CatalogError(f"can't open the catalog {shown}: {_how_to_get(parsed, error)}") from error
    except (DBAPIError, OSError) as error:
        cause = " ".join(str(error.orig if isinstance(error, DBAPIError) else error.strerror or error).split())
        todo = "choose a database that can be written" if parsed.get_backend_name() == "sqlite" else "start its server or correct the URL"
        raise CatalogError(f"can't open the catalog {shown}: {cause}; {todo}") from error
    except CommandError as error:
        raise CatalogError(
            f"can't upgrade the catalog {shown}: {error}; a newer Seaway wrote it, so update this one, "
            "or delete the catalog and run `seaway catalog rebuild`"
        ) from error
    return engine


def writing(engine: Engine) -> Engine:
    """The same engine for transactions that write: on SQLite they take the write lock first, so they wait instead of failing half-way."""
    return engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")


def lock_writers(connection: Connection) -> None:
    """Let one transaction write at a time, until it ends: what it reads from storage is then not older than what it overwrites."""
    if connection.dialect.name == "postgresql":  # SQLite's BEGIN IMMEDIATE is this lock already
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": WRITERS_LOCK})


def migrations() -> Config:
    """Alembic's configuration, by package resource: works from a checkout and from an installed wheel."""
    config = Config()
    config.set_main_option("script_location", "infra.catalog:migrations")
    config.set_main_option("path_separator", "os")
    return config


def _parsed(url: str) -> URL:
    """The URL, with the driver that `seaway[postgres]` brings: for SQLAlchemy a bare `postgresql://` means psycopg 3."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        shown = "its URL" if "@" in url else repr(url)  # a password is nobody's business
        raise CatalogError(
            f"can't open the catalog: {shown} is none that SQLAlchemy reads; write sqlite:////folder/catalog.sqlite "
            "or postgresql://user@host:5432/database"
        ) from None
    return parsed.set(drivername="postgresql+psycopg2") if parsed.drivername == "postgresql" else parsed


def _how_to_get(url: URL, error: Exception) -> str:
    if url.get_backend_name() == "postgresql":
        return f"the driver {url.get_driver_name()} is not installed: pip install 'seaway[postgres]', and write postgresql:// there"
    return f"{error}; Seaway keeps its catalog in SQLite (sqlite:////folder/catalog.sqlite) or PostgreSQL (postgresql://user@host:5432/database)"


def _upgrade(engine: Engine) -> None:
    config = migrations()
    newest = ScriptDirectory.from_config(config).get_current_head()
    with engine.connect() as connection:
        if MigrationContext.configure(connection).get_current_revision() == newest:
            return
    with writing(engine).begin() as connection:
        lock_writers(connection)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _prepare_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")  # the driver's own BEGIN comes only with the first write, and not before DDL
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", "BEGIN"))
