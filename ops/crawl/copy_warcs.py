"""Copies a `warc` source's files byte for byte."""

import hashlib

from infra.artifacts.writer import Writer
from ops.crawl.listing import Entry, open_entry

COPY_CHUNK_BYTES = 4 << 20


def copy_warcs(entries: list[Entry], out: Writer) -> list[str]:
    """Copy every file to `warc/{its name below the root}`.

    Returns:
        What was read, per entry: the mark that `ops.observe` would give it.
    """
    marks, total, copied = [], sum(entry.size for entry in entries), 0
    for entry in entries:
        digest = hashlib.sha256()
        with open_entry(entry) as source, out.open(f"warc/{entry.name}") as target:
            while chunk := source.read(COPY_CHUNK_BYTES):
                digest.update(chunk)
                target.write(chunk)
                copied += len(chunk)
                out.progress(copied, total, "bytes")
        marks.append(entry.etag or digest.hexdigest())
    return marks
