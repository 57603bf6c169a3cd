"""Reads a `files` source: one payload a file."""

import zlib

from infra.artifacts.writer import Writer
from ops.crawl.config import FilesSource
from ops.crawl.listing import UNREAD, Entry, SourceError, content_mark, open_entry
from ops.crawl.media_types import media_type_of
from ops.crawl.payloads import PayloadWriter
from ops.extract.rejects import Reason
from ops.observe import is_oversized


def read_files(source: FilesSource, entries: list[Entry], payloads: PayloadWriter, out: Writer) -> list[str]:
    """Read every file into `payloads`; a file that can't be read, or is too large, is a reject.

    Returns:
        What was read, per entry: the mark that `ops.observe` would give it.
    """
    marks = []
    for done, entry in enumerate(entries):
        marks.append(_read_one(source, entry, payloads))
        out.progress(done + 1, len(entries), "files", payload_bytes=payloads.payload_bytes)
    return marks


def _read_one(source: FilesSource, entry: Entry, payloads: PayloadWriter) -> str:
    uri = f"{source.label}:{entry.name}"
    if is_oversized(source, entry):
        payloads.reject(uri, Reason.TOO_LARGE, f"{entry.size} bytes; max_file_bytes is {source.max_file_bytes}")
        return entry.etag or UNREAD
    try:
        with open_entry(entry) as stream:
            data = stream.read()
    except SourceError as error:
        payloads.reject(uri, Reason.UNREADABLE, type(error.__cause__).__name__)  # not the sentence: it holds the machine's path
        return entry.etag or UNREAD
    payload, name = data, entry.name
    if name.lower().endswith(".gz"):
        name = name[:-3]
        try:
            payload = _inflate(data, source.max_file_bytes)
        except zlib.error as error:
            payloads.reject(uri, Reason.BAD_ENCODING, str(error))
            return entry.etag or content_mark(data)
    if len(payload) > source.max_file_bytes:
        payloads.reject(uri, Reason.TOO_LARGE, f"inflates to more than max_file_bytes, {source.max_file_bytes}")
    else:
        payloads.add(uri, media_type_of(name), payload)
    return entry.etag or content_mark(data)


def _inflate(data: bytes, limit: int) -> bytes:
    """At most `limit` + 1 bytes, so that a bomb is seen and not swallowed."""
    return zlib.decompressobj(31).decompress(data, limit + 1)
