"""Attribute sets beside their source."""

from pathlib import Path

import pyarrow as pa

from infra.artifacts.writer import Writer
from ops.attributes import document_count, write_attributes
from ops.shards import read_table, shard_names
from tests.builders import publish
from tests.ops.normalized import normalized

SCHEMA = pa.schema([("id", pa.string()), ("length", pa.int64())])


def lengths(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([batch["id"], pa.array([len(text) for text in batch["text"].to_pylist()])], schema=SCHEMA)


def test_labels_stand_beside_their_documents_and_progress_is_told_batch_by_batch(tmp_path: Path) -> None:
    source = normalized(tmp_path / "in", [f"{n:0{n}}" for n in range(1, 24)], shards=3)
    told: list[tuple[int, int | None, str]] = []
    out = Writer(
        str(tmp_path / "out" / "attempt"), scratch_url="", progress=lambda done, total, unit, **_: told.append((done, total, unit))
    )
    write_attributes(source, out, lengths, columns=["id", "text"], schema=SCHEMA, batch_rows=5)
    result = publish(tmp_path / "out", out, {})
    assert shard_names(result) == shard_names(source)
    for name in shard_names(source):
        documents, labels = read_table(source, name).to_pylist(), read_table(result, name).to_pylist()
        assert labels == [{"id": row["id"], "length": len(row["text"])} for row in documents]
    assert [done for done, _, _ in told] == sorted({done for done, _, _ in told})
    assert told[-1] == (23, document_count(source), "documents")
