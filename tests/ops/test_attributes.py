"""Attribute sets beside their source."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from infra.artifacts.writer import Writer
from ops.attributes import document_count, map_attributes
from ops.dataflow.config import Execution
from ops.dataflow.shard import Shard, Tally
from ops.dataflow.work import Output
from ops.shards import read_table, shard_names
from tests.builders import publish
from tests.ops.normalized import normalized

SCHEMA = pa.schema([("id", pa.string()), ("length", pa.int64())])


def lengths(shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        tally["characters"] += sum(map(len, batch["text"].to_pylist()))
        yield pa.record_batch([batch["id"], pa.array([len(text) for text in batch["text"].to_pylist()])], schema=SCHEMA)


def test_labels_stand_beside_their_documents_and_progress_is_told_batch_by_batch(tmp_path: Path) -> None:
    source = normalized(tmp_path / "in", [f"{n:0{n}}" for n in range(1, 24)], shards=3)
    told: list[tuple[int, int | None, str]] = []
    out = Writer(
        str(tmp_path / "out" / "attempt"),
        scratch_url=str(tmp_path / "scratch"),
        progress=lambda done, total, unit, **_: told.append((done, total, unit)),
    )
    output = Output(SCHEMA, batch_rows=5)
    done = map_attributes("lengths", source, out, lengths, columns=["id", "text"], output=output, execution=Execution())
    assert (done.rows, done.tally["characters"]) == (23, sum(range(1, 24)))
    result = publish(tmp_path / "out", out, {})
    assert shard_names(result) == shard_names(source)
    for name in shard_names(source):
        documents, labels = read_table(source, name).to_pylist(), read_table(result, name).to_pylist()
        assert labels == [{"id": row["id"], "length": len(row["text"])} for row in documents]
    assert [at for at, _, _ in told] == sorted({at for at, _, _ in told})
    assert len(told) == 6, "two batches of each shard"
    assert told[-1] == (23, document_count(source), "documents")
