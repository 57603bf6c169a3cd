"""Jobs: named selections of the lineage. A run has one partition key, so a job spans one kind of partition at most."""

import time

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph_subset import AssetGraphSubset
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.utils import make_new_backfill_id

from assets.stage import ON_DEMAND_TAG
from orchestration.evaluate_job import benchmarks

DEEPEN = dg.AssetSelection.tag(ON_DEMAND_TAG, "true")
EVERYTHING = dg.AssetSelection.all() - DEEPEN
DATA = dg.AssetSelection.groups("crawl", "documents", "labels", "deduplication", "clusters", "tokens", "store") - DEEPEN
TRAIN = dg.AssetSelection.groups("scaling", "training")
EVALUATE = dg.AssetSelection.groups("evaluation", "release")

SELECTIONS = {"data": DATA, "train": TRAIN, "evaluate": EVALUATE, "everything": EVERYTHING, "deepen": DEEPEN}

# A run that lost its process must not hold its pool slot and its place in the queue for ever.
TAGS = {"dagster/max_runtime": str(14 * 24 * 3600)}

OF_DAGSTER = ("dagster/", ".dagster/")
"""Tags by which Dagster tells one run from another: they must not be handed on."""


def backfill(context: dg.OpExecutionContext, selection: dg.AssetSelection, title: str) -> str:
    """Same request as selecting these assets in the UI and choosing all partitions there."""
    graph = context.repository_def.asset_graph
    request = PartitionBackfill.from_asset_graph_subset(
        backfill_id=make_new_backfill_id(),
        backfill_timestamp=time.time(),
        tags={key: value for key, value in context.run.tags.items() if not key.startswith(OF_DAGSTER)},
        dynamic_partitions_store=context.instance,
        asset_graph_subset=AssetGraphSubset.from_asset_keys(selection.resolve(graph), graph),
        title=title,
        description=None,
        run_config=None,
    )
    context.instance.add_backfill(request)
    context.log.info(f"backfill {request.backfill_id} is requested; the daemon starts its runs, see the Runs page")
    return str(request.backfill_id)


@dg.op(description="Ask the daemon for a backfill of every asset and partition, upstream before downstream.")
def backfill_everything(context: dg.OpExecutionContext) -> str:
    return backfill(context, EVERYTHING, "The whole lineage")


@dg.job(description="The whole lineage: three kinds of partition, hence a backfill that the daemon walks in order.")
def everything() -> None:
    backfill_everything()


@dg.op(description="Ask the daemon for a backfill of all that is built on demand alone.")
def backfill_on_demand(context: dg.OpExecutionContext) -> str:
    return backfill(context, DEEPEN, "What is built on demand")


@dg.job(description="All that no other job builds: learnt quality, clusters, repeated paragraphs, smaller vocabularies. After `data`.")
def deepen() -> None:
    backfill_on_demand()


JOBS: list[dg.JobDefinition | UnresolvedAssetJobDefinition] = [
    dg.define_asset_job("data", DATA, description="From the raw crawl to bucketed token caches and their mixture.", tags=TAGS),
    dg.define_asset_job("train", TRAIN, description="Ladder, scaling law, prediction, hero and cooldown.", tags=TAGS),
    dg.define_asset_job("evaluate", EVALUATE, description="Score the checkpoints and assemble the release.", tags=TAGS),
    everything,
    deepen,
    benchmarks,
]
