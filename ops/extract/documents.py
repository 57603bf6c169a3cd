"""extracted: every record of a raw artifact as a document, or as a reject with its reason."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass

import pyarrow as pa
import pyarrow.compute as pc

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.dataflow.flow import Dataflow, Done
from ops.dataflow.read import read_pieces
from ops.dataflow.shard import Shard, Tally
from ops.dataflow.work import Output
from ops.extract.config import ExtractConfig
from ops.extract.interpret import Document, Interpreter
from ops.extract.records import read_records
from ops.extract.rejects import REJECT_SCHEMA, Reject
from ops.extract.row_buffer import RowBuffer
from ops.row_groups import RowGroups
from ops.shards import ROWS_PER_BATCH, read_batches, shard_name, shard_writer

DOCUMENT_SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("source_id", pa.string()),
        ("media_type", pa.string()),
        ("extractor", pa.string()),
        ("warc_file", pa.string()),
        ("warc_offset", pa.int64()),
        ("warc_length", pa.int64()),
        ("page_starts", pa.list_(pa.int32())),
    ]
)
OUTCOME_SCHEMA = pa.schema([*DOCUMENT_SCHEMA, ("reason", pa.string()), ("detail", pa.string())])
"""A record: a document without a reason, or a reject without a text."""

REJECT_COLUMNS = dict(zip(REJECT_SCHEMA.names, ("source_id", "warc_file", "warc_offset", "reason", "detail"), strict=True))
ROWS_PER_PAYLOAD_BATCH = 64  # payloads may be megabytes each
RECORDS_PER_HEARTBEAT = 100
REJECT_BATCH_BYTES = 16 << 20
RECORDS, REASON = "records", "reason/"


class ExtractStats(Stats):
    """records = documents + the sum of rejects."""

    records: int
    documents: int
    text_bytes: int  # UTF-8; `normalize` sizes its shards by it
    rejects: dict[str, int]
    pages: int = 0  # of the PDFs among the documents
    ocr_pages: int = 0  # of these, read by sight
    broken_pages: int = 0  # of these, given up: their documents lack them


@program(version="7")
def extract(config: ExtractConfig, raw: Artifact, out: Writer) -> ExtractStats:
    """Read every record of a source and keep its text.

    Args:
        raw: `warc/*` (WARC or ARC files) and `files-*.parquet` (uri, media_type, payload).
        out: `part-NNNNN-of-NNNNN.parquet`, one a raw file, rows in its order (`DOCUMENT_SCHEMA`); `rejects.parquet`
            (`REJECT_SCHEMA`), in the order of files and records.

    Raises:
        PoisonedShardsError: names the raw files that can't be read; what is in them can always be interpreted.

    A raw file is a shard: it is committed when its last record is interpreted, and never read again by a later attempt.
    Memory: one payload (`max_payload_bytes`) and one row group, whatever a file holds; PDFs are parsed in a process of
    their own, under `pdf.memory_bytes`.
    """
    names = tuple(name for name in raw.names if name.startswith(("warc/", "files-")))
    flow = Dataflow(out, config.execution, unit=RECORDS)
    shards = [Shard(shard_name(index, len(names)), index) for index in range(len(names))]
    outcomes = flow.map("records", shards, InterpretRecords(config, raw, names), Output(OUTCOME_SCHEMA), judges_rows=False)
    kept = [Shard(shard.name, shard.index, (piece,)) for shard, piece in zip(shards, outcomes.pieces(), strict=True)]
    flow = Dataflow(out, config.execution, outcomes.rows, RECORDS)
    flow.publish(flow.map("documents", kept, keep_documents, Output(DOCUMENT_SCHEMA)))
    _write_rejects(outcomes, out)
    tally = outcomes.tally
    return ExtractStats(
        records=outcomes.rows,
        documents=tally["documents"],
        text_bytes=tally["text_bytes"],
        rejects={key.removeprefix(REASON): count for key, count in sorted(tally.items()) if key.startswith(REASON)},
        pages=tally["pages"],
        ocr_pages=tally["ocr_pages"],
        broken_pages=tally["broken_pages"],
    )


@dataclass(frozen=True)
class InterpretRecords:
    """The records of the raw file with the shard's index -> `OUTCOME_SCHEMA`."""

    config: ExtractConfig
    raw: Artifact
    names: tuple[str, ...]

    def __call__(self, shard: Shard, _batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        made: list[pa.RecordBatch] = []
        rows = RowBuffer(OUTCOME_SCHEMA, made.append)
        with Interpreter(self.config) as interpreter:
            for number, item in enumerate(_interpreted(interpreter, self.raw, self.names[shard.index]), 1):
                _keep(item, rows, tally)
                if number % RECORDS_PER_HEARTBEAT == 0:
                    rows.flush()
                yield from made
                made.clear()
            pages = interpreter.pages
            tally.update({"pages": pages.read, "ocr_pages": pages.by_sight, "broken_pages": pages.broken})
        rows.flush()
        yield from made


def keep_documents(_shard: Shard, batches: Iterator[pa.RecordBatch], _tally: Tally) -> Iterator[pa.RecordBatch]:
    """`OUTCOME_SCHEMA` -> `DOCUMENT_SCHEMA`, without the rejects."""
    for batch in batches:
        yield batch.filter(pc.is_null(batch["reason"])).select(DOCUMENT_SCHEMA.names)


def _interpreted(interpreter: Interpreter, raw: Artifact, name: str) -> Iterator[Document | Reject]:
    if name.startswith("warc/"):
        with raw.open(name) as stream:
            for record in read_records(stream, interpreter.max_block_bytes):
                yield interpreter.of_record(record, name)
    else:
        for batch in read_batches(raw, name, rows=ROWS_PER_PAYLOAD_BATCH):
            for uri, media_type, payload in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield interpreter.of_payload(uri, media_type, payload)


def _keep(item: Document | Reject, rows: RowBuffer, tally: Tally) -> None:
    if isinstance(item, Reject):
        tally[f"{REASON}{item.reason}"] += 1
        rows.add((None, item.uri, None, None, item.warc_file, item.warc_offset, None, None, str(item.reason), item.detail))
        return
    size = len(item.text.encode())
    tally["documents"] += 1
    tally["text_bytes"] += size
    rows.add((*astuple(item), None, None), size)


def _write_rejects(outcomes: Done, out: Writer) -> None:
    with shard_writer(out, "rejects.parquet", REJECT_SCHEMA) as sink:
        rows = RowGroups(REJECT_SCHEMA, ROWS_PER_BATCH, sink)
        for batch in read_pieces(outcomes.pieces(tuple(REJECT_COLUMNS.values())), REJECT_BATCH_BYTES, ROWS_PER_BATCH):
            rejects = batch.filter(pc.is_valid(batch["reason"]))
            rows.add(pa.RecordBatch.from_arrays([rejects[column] for column in REJECT_COLUMNS.values()], schema=REJECT_SCHEMA))
        rows.flush()
