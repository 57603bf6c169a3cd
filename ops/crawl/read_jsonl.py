"""Reads a `jsonl` source: one payload a row."""

import hashlib
import io
import json
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa

from infra.artifacts.writer import Writer
from ops.crawl.config import JsonlSource
from ops.crawl.listing import Entry, open_entry
from ops.crawl.payloads import PayloadWriter
from ops.extract.rejects import Reason

CODECS = {".gz": "gzip", ".zst": "zstd"}


def read_jsonl(source: JsonlSource, entries: list[Entry], payloads: PayloadWriter, out: Writer) -> list[str]:
    """Read every row into `payloads`; a line that is no JSON object with the text field is a reject.

    Returns:
        What was read, per entry: the mark that `ops.observe` would give it.
    """
    marks = []
    for done, entry in enumerate(entries):
        with open_entry(entry) as stream:
            hashing = _HashingReader(stream)
            _read_rows(source, entry, hashing, payloads)
            while hashing.read(1 << 20):  # what a damaged file's decoder did not want
                pass
        marks.append(entry.etag or hashing.sha256.hexdigest())
        out.progress(done + 1, len(entries), "files", rows=payloads.payloads)
    return marks


def _read_rows(source: JsonlSource, entry: Entry, stream: io.RawIOBase, payloads: PayloadWriter) -> None:
    number = 0
    try:
        for number, line in enumerate(_lines(entry.name, stream, source.max_line_bytes), 1):
            _read_row(source, f"{source.label}:{entry.name}:{number}", line, payloads)
    except OSError as error:
        payloads.reject(f"{source.label}:{entry.name}:{number + 1}", Reason.BAD_ENCODING, f"the file can't be read on: {error}")


def _lines(name: str, stream: io.RawIOBase, limit: int) -> Iterator[bytes]:
    """Lines by `\\n` bytes alone: text may hold U+2028 and U+0085, which are no ends of lines here. Over-long ones come cut."""
    codec = next((codec for suffix, codec in CODECS.items() if name.endswith(suffix)), None)
    text = io.BufferedReader(stream if codec is None else pa.CompressedInputStream(pa.PythonFile(stream, "r"), codec))
    while line := text.readline(limit + 1):
        yield line
        while len(line) > limit and not line.endswith(b"\n"):
            line = text.readline(limit + 1)


def _read_row(source: JsonlSource, place: str, line: bytes, payloads: PayloadWriter) -> None:
    if not line.strip():
        return None
    if len(line) > source.max_line_bytes:
        return payloads.reject(place, Reason.TOO_LARGE, f"the line is longer than max_line_bytes, {source.max_line_bytes}")
    try:
        row = json.loads(line)
    except ValueError as error:  # invalid JSON or invalid UTF-8
        return payloads.reject(place, Reason.BAD_ROW, str(error))
    if not isinstance(row, dict) or not isinstance(row.get(source.text_field), str):
        return payloads.reject(place, Reason.BAD_ROW, f"no text in field {source.text_field!r}")
    uri = str(row.get(source.uri_field) or place)
    return payloads.add(uri, "text/plain", row[source.text_field].encode("utf-8", "replace"))


class _HashingReader(io.RawIOBase):
    """Passes reads on and hashes what was read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self.sha256.update(data)
        buffer[: len(data)] = data
        return len(data)
