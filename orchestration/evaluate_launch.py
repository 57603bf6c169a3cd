"""Carrying out a plan: each evaluation ends in exactly one record, whatever happens to its job, and none keeps the next from running."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import uuid4

from assets.factory import Factory
from infra.catalog.catalog import Catalog
from infra.catalog.engine import CatalogError
from infra.dispatch.messages import Message
from infra.dispatch.outcome import Outcome
from ops.evaluation.records import EvaluationRecord
from ops.evaluation.settle import Asked, settle, tell
from orchestration.errors import UnusableCatalogError
from orchestration.evaluate_plan import Plan, Planned

Hear = Callable[[Planned, Message], None]
OF_THIS_HOST = ("task_file", "model_folder", "model")
"""Fields of a job's config that say where something lies, or what the record says of its model anyway."""


def minted_launch() -> str:
    """A name for a launch: when, and something random."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"


def launch(factory: Factory, plan: Plan, name: str, hear: Hear) -> Iterator[tuple[Planned, EvaluationRecord]]:
    """Run what is missing, in order; every evaluation of the plan with its record, that of a success that was there included.

    Again under the same name (after this process was killed, say), it attaches to what runs, and settles what has no record
    in this launch. Under a new name it tries again what failed.

    Raises:
        UnusableCatalogError: before anything is sent.
    """
    try:
        catalog = Catalog.open(factory.profile.storage.catalog)
    except CatalogError as error:
        raise UnusableCatalogError(f"profile {factory.profile.name}, storage.catalog: {error}") from error
    with catalog:
        for planned in plan.evaluations:

            def run(planned: Planned = planned) -> Outcome:
                return factory.run(planned.job, on_message=lambda message: hear(planned, message))

            asked = asked_of(plan, planned, name)
            record = settle(factory.profile.storage.root, factory.profile.backend.kind, asked, run)
            tell(factory.store, catalog, asked, record)
            yield planned, record


def asked_of(plan: Plan, planned: Planned, name: str) -> Asked:
    """What the record of a planned evaluation will say of it."""
    model = planned.model
    return Asked(
        job=planned.job,
        launch=name,
        by="seaway eval",
        suite=plan.suite,
        name=planned.name,
        model={"name": model.name, "digest": model.digest, "context_tokens": model.context_tokens, **model.source.model_dump(mode="json")},
        evaluation={key: value for key, value in planned.job.config.items() if key not in OF_THIS_HOST},
        version=plan.request.version,
        description=plan.request.description,
    )
