"""A crawl's URL index, whatever its form, as record batches of one schema.

Read are Common Crawl's columnar index (Parquet; columns by name, so both its older and its newer tables) and CDXJ, the
line format of pywb and of Common Crawl's index server. A row that names no record is counted, never passed over.
"""

import gzip
import json
import re
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ops.crawl.listing import SourceError

INDEX_SCHEMA = pa.schema(
    [
        ("url", pa.string()),
        ("status", pa.int32()),  # null: a revisit, or a protocol without one
        ("declared_media_type", pa.string()),
        ("detected_media_type", pa.string()),
        ("content_digest", pa.string()),
        ("truncated", pa.string()),
        ("archive", pa.string()),
        ("archive_offset", pa.int64()),
        ("archive_length", pa.int64()),
        ("record_id", pa.string()),
    ]
)
BATCH_ROWS = 16_384
MAX_LINE_BYTES = 1 << 20
COLUMNS = {  # of Common Crawl's table; the ones that are marked may be absent
    "url": "url",
    "status": "fetch_status",
    "declared_media_type": "content_mime_type",
    "detected_media_type": "content_mime_detected",
    "content_digest": "content_digest",
    "truncated": "content_truncated",
    "archive": "warc_filename",
    "archive_offset": "warc_record_offset",
    "archive_length": "warc_record_length",
    "record_id": "warc_record_id",
}
OPTIONAL = frozenset({"detected_media_type", "truncated", "record_id"})
NEEDED = ("url", "archive", "archive_offset", "archive_length")
CDXJ_LINE = re.compile(rb"^\S+ \d{1,17} (\{.*\})\s*$")


@dataclass(frozen=True)
class IndexRows:
    """Rows that name a record (`INDEX_SCHEMA`), and how many beside them did not."""

    rows: pa.RecordBatch
    bad_rows: int


def read_index(name: str, stream: IO[bytes]) -> Iterator[IndexRows]:
    """Read an index file, its form told by its name.

    Raises:
        SourceError: it is no Parquet file, or its table lacks a column.
    """
    if name.endswith(".parquet"):
        yield from _read_columnar(name, stream)
    else:
        yield from _read_cdxj(name, stream)


def _read_columnar(name: str, stream: IO[bytes]) -> Iterator[IndexRows]:
    try:
        table = pq.ParquetFile(stream)
    except pa.ArrowInvalid as error:
        raise SourceError(f"index file {name} can't be read as Parquet ({error}); fetch it again or exclude it") from error
    with table:
        present = set(table.schema_arrow.names)
        if missing := [column for field, column in COLUMNS.items() if column not in present and field not in OPTIONAL]:
            raise SourceError(f"index file {name} lacks {', '.join(missing)}; a columnar URL index has them, so exclude what is none")
        columns = [column for column in COLUMNS.values() if column in present]
        for batch in table.iter_batches(batch_size=BATCH_ROWS, columns=columns):
            yield _usable(pa.record_batch([_column(batch, field) for field in INDEX_SCHEMA], schema=INDEX_SCHEMA))


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    column = COLUMNS[field.name]
    if column not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    values = batch[column]
    if field.name == "record_id" and not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
        ids = [None if value is None else f"<urn:uuid:{uuid.UUID(bytes=bytes(value))}>" for value in values.to_pylist()]
        return pa.array(ids, pa.string())
    return values.cast(field.type)


def _usable(rows: pa.RecordBatch) -> IndexRows:
    """Drop rows without URL, archive, or a place in it."""
    good = pc.and_(pc.greater_equal(rows["archive_offset"], 0), pc.greater(rows["archive_length"], 0))
    for column in NEEDED:
        good = pc.and_(good, pc.is_valid(rows[column]))
    kept = rows.filter(pc.fill_null(good, False))
    return IndexRows(kept, rows.num_rows - kept.num_rows)


def _read_cdxj(name: str, stream: IO[bytes]) -> Iterator[IndexRows]:
    lines: IO[bytes] = gzip.GzipFile(fileobj=stream) if name.endswith(".gz") else stream  # type: ignore[assignment]
    rows: list[tuple[Any, ...]] = []
    bad = 0
    try:
        while line := lines.readline(MAX_LINE_BYTES):
            if not line.strip() or line.startswith(b"!"):  # metadata of the index itself
                continue
            row = _cdxj_row(line)
            if row is None:
                bad += 1
            else:
                rows.append(row)
            if len(rows) == BATCH_ROWS:
                yield IndexRows(_batch(rows), bad)
                rows, bad = [], 0
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SourceError(f"index file {name} does not inflate ({error}); fetch it again or exclude it") from error
    yield IndexRows(_batch(rows), bad)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ([] for _ in INDEX_SCHEMA)
    return pa.record_batch([pa.array(list(c), field.type) for c, field in zip(columns, INDEX_SCHEMA, strict=True)], schema=INDEX_SCHEMA)


def _cdxj_row(line: bytes) -> tuple[Any, ...] | None:
    match = CDXJ_LINE.match(line)
    try:
        found = json.loads(match[1]) if match else None
        if not isinstance(found, dict):
            return None
        offset, length = int(found["offset"]), int(found["length"])
        url, archive = found["url"], found["filename"]
    except (ValueError, KeyError, TypeError):  # UnicodeDecodeError is a ValueError
        return None
    if offset < 0 or length <= 0 or offset >= 1 << 63 or length >= 1 << 63 or not _is_text(url) or not _is_text(archive):
        return None
    status = str(found.get("status", ""))
    texts = (found.get(key) for key in ("mime", "mime-detected", "digest", "truncated"))
    declared, detected, digest, truncated = (value if _is_text(value) and value != "-" else None for value in texts)
    return (url, int(status) if re.fullmatch(r"[1-9]\d\d", status) else None, declared, detected, digest, truncated,
            archive, offset, length, None)  # fmt: skip


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode()  # JSON may hold half a surrogate pair, which is no text
    except UnicodeEncodeError:
        return False
    return True
