"""Dagster's own state: where it lies, and the settings that a lab wants on day one."""

import os
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from assets.profile import Profile
from orchestration.errors import UnusableInstanceError

SETTINGS = "dagster.yaml"


def prepare_home(profile: Profile) -> Path:
    """Create the Dagster home of a profile with our `dagster.yaml`; an existing one is kept as it is.

    Exports DAGSTER_HOME (one that is set stays, made absolute), so that Dagster's own commands started from here find the same instance.

    Raises:
        UnusableInstanceError: Dagster's storage needs a package that is missing, or is another one than the profile's.
    """
    home = Path(os.environ.get("DAGSTER_HOME") or profile.storage.dagster_home).absolute()
    os.environ["DAGSTER_HOME"] = str(home)  # Dagster takes nothing but an absolute path
    if profile.storage.dagster and find_spec("dagster_postgres") is None:
        raise UnusableInstanceError("storage.dagster is PostgreSQL, and dagster-postgres is not installed: pip install 'seaway[postgres]'")
    home.mkdir(parents=True, exist_ok=True)
    settings = home / SETTINGS
    if settings.exists():
        _require_same_storage(settings, profile)
    else:
        _write_privately(settings, settings_of(profile))
    return home


def open_instance(profile: Profile) -> dg.DagsterInstance:
    """The instance in the profile's Dagster home, its pools as wide as the profile says.

    Raises:
        UnusableInstanceError: its storage can't be opened; says what to do.
    """
    prepare_home(profile)
    try:
        if profile.storage.dagster:
            create_engine(
                profile.storage.dagster, poolclass=NullPool
            ).connect().close()  # Dagster itself tries five times and prints each traceback
        instance = dg.DagsterInstance.get()
        for pool, slots in profile.concurrency.pools.items():
            instance.event_log_storage.set_concurrency_slots(pool, slots)
    except SQLAlchemyError as error:
        cause = " ".join(str(getattr(error, "orig", None) or error).split())
        raise UnusableInstanceError(
            f"can't open Dagster's storage {where_records_lie(profile)}: {cause}; start its server or correct the URL"
        ) from error
    return instance


def where_records_lie(profile: Profile) -> str:
    """Dagster's storage, without its password."""
    if profile.storage.dagster:
        return make_url(profile.storage.dagster).render_as_string(hide_password=True)
    return f"SQLite in {os.environ.get('DAGSTER_HOME') or profile.storage.dagster_home}"


def settings_of(profile: Profile) -> str:
    """The text of `dagster.yaml`: what every lab wants, and what this profile asks for."""
    asked: dict[str, Any] = {"concurrency": {"runs": {"max_concurrent_runs": profile.concurrency.runs}}}
    if profile.storage.dagster:
        asked["storage"] = {"postgres": {"postgres_url": profile.storage.dagster}}
    everywhere = files("orchestration").joinpath(SETTINGS).read_text()
    return f"{everywhere}\n# Of profile {profile.name}.\n{yaml.safe_dump(asked, sort_keys=False)}"


def _require_same_storage(settings: Path, profile: Profile) -> None:
    """Runs that go to one database while a person looks into another would be lost without a word."""
    try:
        kept = ((yaml.safe_load(settings.read_text()) or {}).get("storage") or {}).get("postgres", {}).get("postgres_url")
    except (yaml.YAMLError, AttributeError) as error:
        raise UnusableInstanceError(
            f"{settings}: not Dagster's settings ({error}); mend it, or remove it to have it written anew"
        ) from error
    if isinstance(kept, dict):
        return  # `{env: NAME}`: a person's own way to keep a password out of files
    if kept != profile.storage.dagster:
        there = make_url(kept).render_as_string(hide_password=True) if kept else "SQLite"
        raise UnusableInstanceError(
            f"{settings} keeps Dagster's records in {there}, profile {profile.name} in {where_records_lie(profile)}; "
            "remove that file to have it written anew, or correct storage.dagster"
        )


def _write_privately(path: Path, text: str) -> None:
    """Whole or not at all, and for this user's eyes: a database's URL may hold a password."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.touch(mode=0o600)
    part.write_text(text)
    part.replace(path)
