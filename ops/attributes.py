"""Attribute sets: one shard for each shard of a source, one row for each of its rows, `id` first."""

import pyarrow.parquet as pq

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from ops.dataflow.config import Execution
from ops.dataflow.flow import Dataflow, Done
from ops.dataflow.shard import StageFunction, whole_shards
from ops.dataflow.work import Output
from ops.shards import shard_names


def document_count(source: Artifact) -> int:
    """Rows of all shards, from the Parquet footers."""
    return sum(shard_rows(source, name) for name in shard_names(source))


def shard_rows(source: Artifact, name: str) -> int:
    with source.open(name) as stream:
        return int(pq.read_metadata(stream).num_rows)


def map_attributes(
    stage: str, source: Artifact, out: Writer, function: StageFunction, *, columns: list[str], output: Output, execution: Execution
) -> Done:
    """Label a source on whatever engine `execution` names, and write the co-partitioned attribute set.

    Args:
        function: takes batches with `columns`, gives as many rows of `output.schema` in the same order, and judges each
            row by itself.

    Raises:
        PoisonedShardsError: names the shards, and the rows, that can't be labelled.
    """
    flow = Dataflow(out, execution, document_count(source))
    labelled = flow.map(stage, whole_shards(source, shard_names(source), columns), function, output)
    flow.publish(labelled)
    return labelled
