"""What the commands of `seaway` print: plan, artifacts, catalog."""

from collections import Counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sqlalchemy import make_url

from assets.partitions import PROFILE
from assets.plan import Step, make_plan
from infra.artifacts.artifact import Artifact
from infra.catalog.catalog import Catalog
from infra.catalog.engine import CatalogError
from orchestration.cost import cost_of
from orchestration.definitions import FACTORY
from orchestration.errors import UnusableCatalogError
from orchestration.naming import require_asset


def show_plan(console: Console, everything: bool) -> None:
    """One line per node that would run: the verdict, why, and what it costs. With `everything`, one per node of the lineage."""
    steps = make_plan(FACTORY.resolver, FACTORY.store)
    verdicts = Counter(step.verdict for step in steps)
    shown = [step for step in steps if everything or step.verdict in ("build", "perhaps")]
    if shown:
        console.print(_plan_table(shown))
    console.print(
        f"profile {PROFILE.name}: {verdicts['build']} to build, {verdicts['perhaps']} perhaps "
        f"(they run only if what they wait for comes out in other bytes), {verdicts['published']} published, "
        f"{verdicts['on demand']} on demand (seaway demo --job deepen; --all lists them)"
    )


def _plan_table(steps: list[Step]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("node", "verdict", "why", "cost"):
        table.add_column(column, overflow="fold", no_wrap=column in ("node", "verdict"))
    colours = {"build": "bold", "perhaps": "dim", "published": "green", "on demand": "cyan"}
    for step in steps:
        table.add_row(
            escape(str(step.node)),
            f"[{colours[step.verdict]}]{step.verdict}[/]",
            escape("\n".join(step.reasons)),
            cost_of(step.resolved, step.last_seconds),
        )
    return table


def show_artifacts(console: Console, asset: str | None) -> None:
    """Every published artifact of the profile's root, from storage itself.

    Raises:
        UnknownNodeError: nothing of that name is published, nor will be.
    """
    table = Table(box=None, pad_edge=False)
    for column in ("asset", "partition", "recipe", "digest", "files", "bytes"):
        table.add_column(column, justify="right" if column in ("files", "bytes") else "left", no_wrap=True)
    total = 0
    for name, partition, recipe, artifact in FACTORY.store.artifacts():
        if asset in (None, name):
            total += 1
            table.add_row(name, partition or "", recipe, artifact.digest[:16], str(len(artifact.names)), f"{bytes_of(artifact):,}")
    if total == 0 and asset is not None:
        require_asset(asset)
    if total:
        console.print(table)
    console.print(f"{total} artifacts in {PROFILE.storage.root}", soft_wrap=True)


def rebuild_catalog(console: Console) -> None:
    """Recreate the profile's catalog from its root.

    Raises:
        UnusableCatalogError: the database can't be opened.
    """
    try:
        catalog = Catalog.open(PROFILE.storage.catalog)
    except CatalogError as error:
        raise UnusableCatalogError(f"profile {PROFILE.name}, storage.catalog: {error}") from error
    with catalog:
        catalog.rebuild(FACTORY.store)
    shown = make_url(PROFILE.storage.catalog).render_as_string(hide_password=True)
    console.print(f"catalog {shown} rebuilt from {PROFILE.storage.root}", soft_wrap=True)


def bytes_of(artifact: Artifact) -> int:
    """Bytes of all files of an artifact."""
    return sum(entry.size for entry in artifact.manifest.files)
