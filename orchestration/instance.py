"""Dagster's own state: where it lies, and the settings that a lab wants on day one."""

import os
from importlib.resources import files
from pathlib import Path

import dagster as dg

from assets.profile import Profile


def prepare_home(profile: Profile) -> Path:
    """Create the Dagster home of a profile with our `dagster.yaml`; an existing one is kept as it is.

    Exports DAGSTER_HOME (one that is set stays, made absolute), so that Dagster's own commands started from here find the same instance.
    """
    home = Path(os.environ.get("DAGSTER_HOME") or profile.storage.dagster_home).absolute()
    os.environ["DAGSTER_HOME"] = str(home)  # Dagster takes nothing but an absolute path
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(files("orchestration").joinpath("dagster.yaml").read_text())
    return home


def open_instance(profile: Profile) -> dg.DagsterInstance:
    """The instance in the profile's Dagster home."""
    prepare_home(profile)
    return dg.DagsterInstance.get()
