"""Blobs: files beside the tables, named in a reserved table, so that they are committed, sealed and unique like rows."""

import pyarrow as pa

from infra.archive import PROTOCOL
from infra.archive.tables import Table

BLOBS = Table(
    "blobs",
    pa.schema(
        [
            pa.field("name", pa.string(), nullable=False),
            pa.field("file", pa.string(), nullable=False),  # relative to the archive
            pa.field("size", pa.int64(), nullable=False),
            pa.field("sha256", pa.string(), nullable=False),
        ]
    ),
    key=("name",),
)


def blob_uri(name: str) -> str:
    """How rows name a blob of their own archive: it stays true when the archive is moved."""
    return f"{PROTOCOL}://{BLOBS.name}/{name}"
