"""Small crawls in memory: archives, and the index rows that name their records."""

import base64
import gzip
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ops.crawl.config import IndexSource
from tests.ops.extract.archives import html, http, warc

COLUMNAR = pa.schema(  # Common Crawl's types
    [
        ("url_surtkey", pa.string()),
        ("url", pa.string()),
        ("fetch_status", pa.int16()),
        ("content_digest", pa.string()),
        ("content_mime_type", pa.string()),
        ("content_mime_detected", pa.string()),
        ("content_truncated", pa.string()),
        ("warc_filename", pa.string()),
        ("warc_record_offset", pa.int32()),
        ("warc_record_length", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Row:
    """One row of an index."""

    url: str
    archive: str
    offset: int
    length: int
    digest: str | None = None
    status: int | None = 200
    declared: str | None = "text/html"
    detected: str | None = "text/html"
    truncated: str | None = None


@dataclass(frozen=True)
class Crawl:
    files: dict[str, bytes]
    rows: tuple[Row, ...]

    def row(self, url: str, **changes: object) -> Row:
        return replace(next(row for row in self.rows if row.url == url), **changes)  # type: ignore[arg-type]


def digest_of(payload: bytes) -> str:
    return base64.b32encode(hashlib.sha1(payload).digest()).decode()


def text_of(number: int) -> str:
    """Several hundred bytes that no other page has, and that don't compress to nothing."""
    return " ".join(hashlib.sha256(f"{number}-{i}".encode()).hexdigest() for i in range(12))


def small_crawl(pages: int = 12, archives: int = 3) -> Crawl:
    """Pages spread over gzip archives; before each page lies a request record that no index row names."""
    files: dict[str, bytes] = {}
    rows: list[Row] = []
    for number in range(archives):
        name, data = f"crawl-data/C-1/segments/{number}/warc/{number:05d}.warc.gz", bytearray()
        for page in range(number, pages, archives):
            url, body = f"http://site-{page % 5}.example/page/{page}", html(text_of(page))
            data += gzip.compress(warc("request", url, b"GET / HTTP/1.1\r\n\r\n"), mtime=0)
            record = warc("response", url, http(body), fields={"WARC-Payload-Digest": f"sha1:{digest_of(body)}"})
            member = gzip.compress(record, mtime=0)
            rows.append(Row(url, name, len(data), len(member), digest_of(body)))
            data += member
        files[name] = bytes(data)
    return Crawl(files, tuple(rows))


def columnar(rows: Sequence[Row]) -> bytes:
    """The rows as a file of Common Crawl's columnar index."""
    columns = [
        [f"x){row.url}" for row in rows],
        [row.url for row in rows],
        [row.status for row in rows],
        [row.digest for row in rows],
        [row.declared for row in rows],
        [row.detected for row in rows],
        [row.truncated for row in rows],
        [row.archive for row in rows],
        [row.offset for row in rows],
        [row.length for row in rows],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, COLUMNAR, strict=True)]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=COLUMNAR), out)
    return out.getvalue()


def cdxj(rows: Sequence[Row]) -> bytes:
    """The rows as CDXJ, as Common Crawl's index server writes it: numbers are strings."""
    lines = []
    for row in rows:
        about = {"url": row.url, "mime": row.declared, "mime-detected": row.detected, "status": str(row.status), "digest": row.digest}
        about |= {"length": str(row.length), "offset": str(row.offset), "filename": row.archive, "truncated": row.truncated}
        found = {name: value for name, value in about.items() if value is not None}
        lines.append(f"example,site)/page 20260101000000 {json.dumps(found)}")
    return "\n".join(lines).encode() + b"\n"


def write_index(folder: Path, parts: Mapping[str, bytes]) -> Path:
    for name, data in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def index_source(root: Path | str, archive: str, **options: object) -> IndexSource:
    return IndexSource.model_validate(
        {"domain": "web", "licence": "none", "crawl": "C-1", "root": str(root), "archive": archive, "connections": 3, **options}
    )
