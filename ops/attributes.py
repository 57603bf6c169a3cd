"""Attribute sets: one shard for each shard of a source, one row for each of its rows, `id` first."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from ops.dataflow.config import Execution
from ops.dataflow.flow import Dataflow, Done
from ops.dataflow.shard import StageFunction, whole_shards
from ops.dataflow.work import Output
from ops.shards import read_batches, shard_names, write_table


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


def write_attributes(
    source: Artifact,
    out: Writer,
    label: Callable[[pa.RecordBatch], pa.RecordBatch],
    *,
    columns: list[str],
    schema: pa.Schema,
    batch_rows: int,
) -> None:
    """Label a source batch by batch and write the co-partitioned attribute set.

    Args:
        label: takes a batch with `columns`, gives one of `schema` with as many rows in the same order. It must
            judge each row by itself: the batch size is nobody's business but the memory's.

    One shard's labels are held in memory (tens of bytes a document), so that row groups, and with them the
    bytes, do not depend on the batch size.
    """
    total, done = document_count(source), 0
    for name in shard_names(source):
        labelled = []
        for batch in read_batches(source, name, columns, batch_rows):
            labelled.append(label(batch))
            done += batch.num_rows
            out.progress(done, total, "documents")
        write_table(out, name, pa.Table.from_batches(labelled, schema))
