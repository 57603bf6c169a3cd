"""Builders of web archives, byte by byte."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from tests.builders import publish

HTML = b"<html><head><title>t</title></head><body><article><p>%s</p></article></body></html>"


def html(text: str) -> bytes:
    return HTML % text.encode()


def http(body: bytes, *, status: int = 200, media_type: str = "text/html", headers: Mapping[str, str] | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {media_type}", *(f"{name}: {value}" for name, value in (headers or {}).items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def warc(
    kind: str,
    uri: str,
    block: bytes,
    *,
    fields: Mapping[str, str] | None = None,
    length: int | None = None,
    content_type: str = "application/http",
) -> bytes:
    head = {
        "WARC-Type": kind,
        "WARC-Target-URI": uri,
        "WARC-Date": "2026-01-01T00:00:00Z",
        "Content-Type": content_type,
        **(fields or {}),
        "Content-Length": str(len(block) if length is None else length),
    }
    return b"WARC/1.0\r\n" + "".join(f"{n}: {v}\r\n" for n, v in head.items()).encode() + b"\r\n" + block + b"\r\n\r\n"


def page(uri: str, text: str) -> bytes:
    return warc("response", uri, http(html(text)))


def gzipped(records: Sequence[bytes]) -> bytes:
    return b"".join(gzip.compress(record, mtime=0) for record in records)


def raw_artifact(directory: Path, files: Mapping[str, bytes]) -> Artifact:
    """A raw artifact that holds the given files."""
    directory.mkdir(parents=True, exist_ok=True)
    out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
    for name, data in files.items():
        with out.open(name) as stream:
            stream.write(data)
    return publish(directory, out, {})
