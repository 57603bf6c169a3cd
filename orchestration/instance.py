"""Dagster's own state: where it lies, and the settings that a lab wants on day one."""

import os
from importlib.resources import files
from pathlib import Path

import dagster as dg

from assets.profile import Profile


def prepare_home(profile: Profile) -> Path:
    """Create the Dagster home of a profile with our `dagster.yaml`; an existing one is kept as it is.

    Exports DAGSTER_HOME, unless it is set, so that Dagster's own commands started from here find the same instance.
    """
    home = Path(os.environ.setdefault("DAGSTER_HOME", str(Path(profile.storage.dagster_home).absolute())))
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(files("orchestration").joinpath("dagster.yaml").read_text())
    return home


def open_instance(profile: Profile) -> dg.DagsterInstance:
    prepare_home(profile)
    return dg.DagsterInstance.get()
