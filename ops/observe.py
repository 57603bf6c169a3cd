"""The fingerprint of the outside world, taken before a source is read.

It enters the recipe of `raw`: when it changes, the source is read again; when it doesn't, nothing is.
"""

import hashlib
import json
import sys
import sysconfig

from ops.crawl.config import FilesSource, IndexSource, PydocSource, SourceSpec
from ops.crawl.index.paths import index_entries
from ops.crawl.listing import UNREAD, Entry, RootedSource, SourceError, fingerprint, list_entries, open_entry


def observe(source: SourceSpec) -> str:
    """16 hex that stand for what the source holds now.

    Files, a URL index's among them: name, size and content of each (an object store's own ETag instead of the content;
    of an index that is named by a list, the list). A pydoc crawl: the Python that would answer, and the snapshot's instant.

    Raises:
        SourceError: the source's root is missing or empty.
    """
    if isinstance(source, PydocSource):
        return _observe_python(source)
    return observe_entries(source, index_entries(source) if isinstance(source, IndexSource) else list_entries(source))


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
    try:
        with open_entry(entry) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
    except SourceError:
        if isinstance(source, FilesSource):
            return UNREAD  # one document less, and said so; of an archive or a table nobody knows what is missing
        raise


def _observe_python(source: PydocSource) -> str:
    python = [sys.version, sys.platform, sysconfig.get_path("stdlib"), source.snapshot]
    return hashlib.sha256(json.dumps(python).encode()).hexdigest()[:16]
