"""extracted: every record of a raw artifact as a document, or as a reject with its reason."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple

import pyarrow as pa

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.extract.config import ExtractConfig
from ops.extract.interpret import Document, Interpreter
from ops.extract.records import read_records
from ops.extract.rejects import REJECT_SCHEMA, Reject, reject_row
from ops.extract.row_buffer import RowBuffer
from ops.shards import read_batches, shard_name, shard_writer

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
ROWS_PER_PAYLOAD_BATCH = 64  # payloads may be megabytes each
RECORDS_PER_HEARTBEAT = 100


class ExtractStats(Stats):
    """records = documents + the sum of rejects."""

    records: int
    documents: int
    text_bytes: int  # UTF-8; `normalize` sizes its shards by it
    rejects: dict[str, int]
    pages: int = 0  # of the PDFs among the documents
    ocr_pages: int = 0  # of these, read by sight
    broken_pages: int = 0  # of these, given up: their documents lack them


@program(version="4")
def extract(config: ExtractConfig, raw: Artifact, out: Writer) -> ExtractStats:
    """Read every record of a source and keep its text.

    Args:
        raw: `warc/*` (WARC or ARC files) and `files-*.parquet` (uri, media_type, payload).
        out: `part-NNNNN-of-NNNNN.parquet`, one a raw file, rows in its order (`DOCUMENT_SCHEMA`); `rejects.parquet`
            (`REJECT_SCHEMA`).

    Memory: one payload (`max_payload_bytes`) and one record batch, whatever a file holds; PDFs are parsed in a process of
    their own, under `pdf.memory_bytes`.
    """
    names = [name for name in raw.names if name.startswith(("warc/", "files-"))]
    counts = _Counts()
    with Interpreter(config) as interpreter, shard_writer(out, "rejects.parquet", REJECT_SCHEMA) as reject_sink:
        rejects = RowBuffer(REJECT_SCHEMA, reject_sink)
        for index, name in enumerate(names):
            with shard_writer(out, shard_name(index, len(names)), DOCUMENT_SCHEMA) as sink:
                documents = RowBuffer(DOCUMENT_SCHEMA, sink)
                for item in _interpreted(interpreter, raw, name):
                    _keep(item, documents, rejects, counts)
                    if counts.records % RECORDS_PER_HEARTBEAT == 0:
                        out.progress(counts.records, None, "records", documents=counts.documents, text_bytes=counts.text_bytes)
                documents.flush()
        rejects.flush()
    out.progress(counts.records, counts.records, "records", documents=counts.documents, text_bytes=counts.text_bytes)
    return ExtractStats(
        records=counts.records,
        documents=counts.documents,
        text_bytes=counts.text_bytes,
        rejects=dict(sorted(counts.rejects.items())),
        pages=interpreter.pages.read,
        ocr_pages=interpreter.pages.by_sight,
        broken_pages=interpreter.pages.broken,
    )


class _Counts:
    def __init__(self) -> None:
        self.documents = self.text_bytes = 0
        self.rejects: Counter[str] = Counter()

    @property
    def records(self) -> int:
        return self.documents + self.rejects.total()


def _interpreted(interpreter: Interpreter, raw: Artifact, name: str) -> Iterator[Document | Reject]:
    if name.startswith("warc/"):
        with raw.open(name) as stream:
            for record in read_records(stream, interpreter.max_block_bytes):
                yield interpreter.of_record(record, name)
    else:
        for batch in read_batches(raw, name, rows=ROWS_PER_PAYLOAD_BATCH):
            for uri, media_type, payload in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield interpreter.of_payload(uri, media_type, payload)


def _keep(item: Document | Reject, documents: RowBuffer, rejects: RowBuffer, counts: _Counts) -> None:
    if isinstance(item, Reject):
        rejects.add(reject_row(item))
        counts.rejects[str(item.reason)] += 1
        return
    size = len(item.text.encode())
    documents.add(astuple(item), size)
    counts.documents += 1
    counts.text_bytes += size
