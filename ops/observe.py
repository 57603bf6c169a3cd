"""The fingerprint of the outside world, taken before a source is read.

It enters the recipe of `raw`: when it changes, the source is read again; when it doesn't, nothing is.
"""

import hashlib
import json
import sys
import sysconfig
from pathlib import Path

from ops.config import FilesSource, PydocSource, SourceSpec
from ops.crawl.listing import UNREAD, Entry, RootedSource, content_mark, fingerprint, list_entries


def observe(source: SourceSpec) -> str:
    """16 hex that stand for what the source holds now.

    Files: name, size and content of each (an object store's own ETag instead of the content). A pydoc crawl: the
    Python that would answer, and the snapshot's instant.

    Raises:
        SourceError: the source's root is missing or empty.
    """
    return _observe_python(source) if isinstance(source, PydocSource) else observe_entries(source, list_entries(source))


def observe_entries(source: RootedSource, entries: list[Entry]) -> str:
    return fingerprint((entry.name, entry.size, _mark(source, entry)) for entry in entries)


def is_oversized(source: RootedSource, entry: Entry) -> bool:
    """A file that will be refused for its size alone, unread."""
    return isinstance(source, FilesSource) and entry.size > source.max_file_bytes


def _mark(source: RootedSource, entry: Entry) -> str:
    if entry.etag is not None:
        return entry.etag
    if is_oversized(source, entry):
        return UNREAD
    if isinstance(source, FilesSource):
        return _read_mark(entry.url)
    return _stream_mark(entry.url)


def _read_mark(path: str) -> str:
    try:
        return content_mark(Path(path).read_bytes())
    except OSError:
        return UNREAD


def _stream_mark(path: str) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _observe_python(source: PydocSource) -> str:
    python = [sys.version, sys.platform, sysconfig.get_path("stdlib"), source.snapshot]
    return hashlib.sha256(json.dumps(python).encode()).hexdigest()[:16]
