"""task_items -> task_scores: a task made of held-out documents, and every checkpoint graded on it, with a record that stays."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.factory import Factory
from assets.lineage import CHOSEN, same
from assets.partitions import CHECKPOINTS
from assets.report import bars, counts, numbers, table
from assets.stage import Report, stage
from infra.artifacts.artifact import Artifact
from infra.dispatch.job import Job
from infra.dispatch.outcome import Outcome

SUITE = "lineage"


@stage(
    program="ops.evaluation.tasks.continuations:make_continuations",
    inputs={"store": same("store"), "tokenizer": same("tokenizer")},
    group="evaluation",
    kinds={"yaml"},
    owner="team:evaluation",
    automated=False,
)
def task_items(artifact: Artifact) -> Report:
    """Which text goes on after this passage? Items of held-out documents; wrong answers go on after other passages of the same domain."""
    return Report(metadata={**numbers(artifact.stats), "by_domain": counts(artifact.stats["by_domain"], "domain", "items")})


def keep_record(factory: Factory, job: Job, launch: str, end: Outcome | Exception) -> None:
    """One record of what a checkpoint's job came to, as `seaway eval` keeps them: on the board, in the catalog, beside its samples."""
    from infra.catalog.catalog import Catalog
    from ops.evaluation.settle import Asked, settle, tell  # the lineage loads without pyarrow

    inputs: Mapping[str, Any] = job.payload["inputs"]
    asked = Asked(
        job=job,
        launch=launch[:8],  # as runs are called elsewhere
        by="dagster",
        suite=SUITE,
        name="continuations",
        model={"name": job.partition, "digest": inputs["checkpoint"], "asset": job.partition},
        evaluation={"engine": "native", "data": inputs["task_items"], "limit": None, **job.config},
    )

    def came() -> Outcome:
        if isinstance(end, Exception):
            raise end
        return end

    profile = factory.profile
    with Catalog.open(profile.storage.catalog) as catalog:
        record = settle(profile.storage.root, profile.backend.kind, asked, came)
        tell(factory.store, catalog, asked, record)
    if record.status == "artifact_failed":  # other failures are told by whoever ran the job
        raise dg.Failure(str(record.reason), allow_retries=False)


@stage(
    program="model.eval.tasks.score_items:score_items",
    inputs={"checkpoint": CHOSEN, "tokenizer": same("tokenizer"), "task_items": same("task_items")},
    partitions=CHECKPOINTS,
    group="evaluation",
    kinds={"jax"},
    owner="team:evaluation",
    automated=False,
    pool="accelerator",
    record=keep_record,
    checks={"better_than_chance": "The interval of the success rate lies above what guessing gets."},
)
def task_scores(artifact: Artifact) -> Report:
    """How often a checkpoint knows which text goes on, with 95% intervals, by domain, beside guessing. `seaway dash` shows every item."""
    rows = rates(artifact.stats)
    overall = rows[0]
    intervals = {row["slice"]: (row["low"], row["high"]) for row in rows}
    chance = artifact.stats["chance"]
    return Report(
        metadata={
            **numbers(artifact.stats),
            "rates": table(rows),
            "by_domain": bars(
                {row["slice"]: row["rate"] for row in rows},
                "Right continuations",
                "success rate",
                intervals=intervals,
                mark=("chance", chance),
            ),
        },
        warnings={"better_than_chance": overall["low"] > chance},
    )


def rates(stats: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for all items and one per domain: the success rate over what was asked, with its interval."""
    from ops.evaluation.statistics import Tally, estimate  # the lineage loads without scipy

    tallies = {"all": Tally(stats["attempted"], stats["scored"], stats["correct"])}
    tallies |= {domain: Tally(asked, asked, correct) for domain, (asked, correct) in stats["by_domain"].items()}
    rows = []
    for name, tally in tallies.items():
        found = estimate(tally)
        rows.append({"slice": name, "rate": found.least, "low": found.low, "high": found.high, "items": tally.attempted})
    return rows
