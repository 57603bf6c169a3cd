"""WARC 1.1 files, one gzip member a record, equal bytes for equal exchanges (ISO 28500:2017)."""

import base64
import gzip
import hashlib
import uuid
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Self

from infra.artifacts.writer import Writer
from ops.crawl.fetch import Exchange
from ops.crawl.robots import USER_AGENT

GZIP_LEVEL = 6


class WarcWriter:
    """Appends records to one stream.

    `instant` (ISO 8601, UTC) becomes every WARC-Date, and record ids are UUIDv5 over instant, URL and content: a
    snapshot is a statement about one instant, and must rebuild to the byte. When each page really came over the wire is
    provenance, and lies with the attempt.
    """

    def __init__(self, stream: IO[bytes], *, instant: str, name: str) -> None:
        self._stream, self._instant = stream, instant
        self.size = 0
        self._warcinfo_id = self._write_warcinfo(name)

    def write_exchange(self, exchange: Exchange) -> None:
        """A request record and the response record that answers it."""
        response_id = self._record_id("response", exchange.url, exchange.response_head + exchange.body)
        request_id = self._record_id("request", exchange.url, exchange.request_head)
        target = [("WARC-Target-URI", exchange.url), ("WARC-Warcinfo-ID", self._warcinfo_id)]
        self._write(
            "request", request_id, [*target, ("WARC-Concurrent-To", response_id)], "application/http;msgtype=request", exchange.request_head
        )
        fields = [*target, ("WARC-Payload-Digest", sha1_digest(exchange.body))]
        if exchange.is_cut:
            fields.append(("WARC-Truncated", "length"))
        self._write("response", response_id, fields, "application/http;msgtype=response", exchange.response_head + exchange.body)

    def _write_warcinfo(self, name: str) -> str:
        block = (
            f"software: {USER_AGENT}\r\nformat: WARC File Format 1.1\r\n"
            "conformsTo: https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/\r\nrobots: obey\r\n"
        ).encode()
        record_id = self._record_id("warcinfo", name, block)
        self._write("warcinfo", record_id, [("WARC-Filename", name)], "application/warc-fields", block)
        return record_id

    def _record_id(self, kind: str, url: str, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        return f"<urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{kind} {self._instant} {url} {digest}')}>"

    def _write(self, kind: str, record_id: str, fields: list[tuple[str, str]], content_type: str, block: bytes) -> None:
        head = [
            ("WARC-Type", kind),
            ("WARC-Record-ID", record_id),
            ("WARC-Date", self._instant),
            *fields,
            ("WARC-Block-Digest", sha1_digest(block)),
            ("Content-Type", content_type),
            ("Content-Length", str(len(block))),
        ]
        text = "WARC/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in head) + "\r\n"
        member = gzip.compress(text.encode() + block + b"\r\n\r\n", GZIP_LEVEL, mtime=0)
        self._stream.write(member)
        self.size += len(member)


class RollingWarc:
    """Writes exchanges into `warc/00000.warc.gz` and on; a file is closed once it holds `max_bytes`."""

    def __init__(self, out: Writer, *, instant: str, max_bytes: int) -> None:
        self._out, self._instant, self._max_bytes = out, instant, max_bytes
        self._opened = ExitStack()
        self._writer: WarcWriter | None = None
        self._files = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._opened.__exit__(kind, error, traceback)

    def write(self, exchange: Exchange) -> None:
        if self._writer is None:
            name = f"warc/{self._files:05d}.warc.gz"
            self._files += 1
            self._writer = WarcWriter(self._opened.enter_context(self._out.open(name)), instant=self._instant, name=name)
        self._writer.write_exchange(exchange)
        if self._writer.size >= self._max_bytes:
            self._opened.close()
            self._writer = None


def sha1_digest(data: bytes) -> str:
    """A WARC digest field: `sha1:` and 32 characters of base 32."""
    return "sha1:" + base64.b32encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode()
