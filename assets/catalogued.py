"""What a person looks up without the lineage goes into the catalog as it is published: a board needs no rebuild to show it."""

from assets.factory import Factory
from infra.dispatch.job import Job
from infra.dispatch.outcome import Outcome


def in_catalog(factory: Factory, job: Job, launch: str, end: Outcome | Exception) -> None:
    """Put a job's artifact into the catalog; a failure published none."""
    if isinstance(end, Exception):
        return
    from infra.catalog.catalog import Catalog  # the lineage loads without SQLAlchemy

    with Catalog.open(factory.profile.storage.catalog) as catalog:
        catalog.record(factory.store, job.asset, job.partition, job.recipe)
