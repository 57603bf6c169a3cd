"""An HTTP response as a WARC block holds it: status, headers, body; and the body decoded."""

import io
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fastwarc.stream_io import BrotliReader, ZstdReader

MAX_HEAD_BYTES = 256 << 10
GZIP_MAGIC = b"\x1f\x8b"
STATUS_LINE = re.compile(rb"HTTP/\d(?:\.\d)?\s+(\d{3})[^\n]*\n")
BLANK_LINE = re.compile(rb"\n\r*\n")
CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\n]*)?\r?\n")


class HttpError(ValueError):
    """The block is no HTTP response."""


class CodingError(ValueError):
    """A coding named in the headers does not decode."""


class BodyTooLargeError(ValueError):
    """The decoded body is longer than the cap."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Header names are lower case; the first of repeated ones counts. `body` is as stored."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        """Content-Type without parameters, lower case; empty when there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str | None:
        match = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", self.headers.get("content-type", ""), re.IGNORECASE)
        return match[1] if match else None


def parse_response(block: bytes) -> HttpResponse:
    """Split a block into status line, headers and body; tolerant of bare line feeds and odd headers, as browsers are.

    Raises:
        HttpError: there is no status line.
    """
    match = STATUS_LINE.match(block)
    if match is None:
        raise HttpError(f"no HTTP status line but {block[:40].decode('utf-8', 'replace')!r}")
    stop = block.find(b"\n", MAX_HEAD_BYTES - 1) + 1 or len(block)  # the line that crosses the cap is still read
    blank = BLANK_LINE.search(block, match.end() - 1, stop)
    head = block[match.end() : blank.start() if blank else stop]
    headers: dict[str, str] = {}
    for line in head.decode("utf-8", "replace").split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(name.strip().lower(), value.strip())
    return HttpResponse(int(match[1]), headers, block[blank.end() if blank else stop :])


def untransferred(response: HttpResponse) -> bytes:
    """The body without chunking. Many writers store it decoded under the old header; then it is taken as it is."""
    if response.headers.get("transfer-encoding", "").lower() != "chunked":
        return response.body
    chunks = b"".join(_chunks(response.body))
    return chunks or response.body


def decoded(response: HttpResponse, max_bytes: int) -> bytes:
    """The body without transfer and content codings.

    Raises:
        CodingError: the content coding is broken or unknown.
        BodyTooLargeError: the body decodes to more than `max_bytes`.
    """
    body = untransferred(response)
    if codings := response.headers.get("content-encoding"):
        for coding in reversed(re.split(r"[,\s]+", codings.lower())):
            body = _decode(coding, body, max_bytes)
    if len(body) > max_bytes:
        raise BodyTooLargeError(f"more than max_payload_bytes, {max_bytes}")
    return body


def _chunks(body: bytes) -> Iterator[bytes]:
    """Chunk contents until the last chunk, or the first thing that is none."""
    at = 0
    while match := CHUNK_SIZE.match(body, at):
        size = int(match[1], 16)
        if size == 0:
            return
        yield body[match.end() : match.end() + size]
        at = match.end() + size
        at += 2 if body[at : at + 2] == b"\r\n" else 1


def _decode(coding: str, body: bytes, max_bytes: int) -> bytes:
    if coding in ("", "identity", "none") or not body:
        return body
    if coding in ("gzip", "x-gzip"):
        return _inflate(body, 31, max_bytes) if body.startswith(GZIP_MAGIC) else body  # stored decoded under the old header
    if coding == "deflate":
        return _inflate(body, 15 if body[0] & 0x0F == 8 else -15, max_bytes)  # RFC 9110 says zlib, some servers send it raw
    if coding in ("br", "zstd"):
        return _read_stream(coding, body, max_bytes)
    raise CodingError(f"content coding {coding!r} is unknown")


def _inflate(body: bytes, window_bits: int, max_bytes: int) -> bytes:
    inflater = zlib.decompressobj(window_bits)
    try:
        data = inflater.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise CodingError(str(error)) from error
    if not inflater.eof and len(data) <= max_bytes:
        raise CodingError("the compressed body is cut off")
    return data


def _read_stream(coding: str, body: bytes, max_bytes: int) -> bytes:
    reader = (BrotliReader if coding == "br" else ZstdReader)(io.BytesIO(body))
    data = bytearray()
    try:
        while len(data) <= max_bytes and (chunk := reader.read(min(1 << 20, max_bytes + 1 - len(data)))):
            data += chunk
    except OSError as error:
        raise CodingError(f"{coding}: {error}") from error
    return bytes(data)
