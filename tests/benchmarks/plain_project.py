"""A throw-away code location of plain Dagster, as its documentation says: nothing of ours is in it.

`plain` is one run a partition, as backfills go by default; `plain_shared` has the policy that lets `$SHARED` partitions share a run.
"""

import os

import dagster as dg

PARTITIONS = dg.StaticPartitionsDefinition([f"p{number:05d}" for number in range(int(os.environ["SEAWAY_BENCH_PARTITIONS"]))])


@dg.asset(partitions_def=PARTITIONS)
def plain() -> dg.MaterializeResult[None]:
    """What Dagster costs by itself."""
    return dg.MaterializeResult(metadata={"files": 1})


@dg.asset(partitions_def=PARTITIONS, backfill_policy=dg.BackfillPolicy.multi_run(int(os.environ["SEAWAY_BENCH_SHARED"])))
def plain_shared() -> dg.MaterializeResult[None]:
    """The same, several partitions in a run."""
    return dg.MaterializeResult(metadata={"files": 1})


defs = dg.Definitions(assets=[plain, plain_shared])
