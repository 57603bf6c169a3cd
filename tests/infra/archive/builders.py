"""A small table and rows for it, as an evaluation would write them."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pyarrow as pa

from infra.archive.archive import Archive
from infra.archive.tables import Table

ITEMS = Table(
    "items",
    pa.schema([pa.field("task", pa.string()), pa.field("doc", pa.int64()), pa.field("text", pa.string())]),
    key=("task", "doc"),
)
NOW = timedelta(0)  # what was written before this moment is old
GROWN = Table(ITEMS.name, ITEMS.schema.append(pa.field("score", pa.float64())), ITEMS.key)
SCORED = Table(ITEMS.name, ITEMS.schema.append(pa.field("score", pa.string())), ITEMS.key)


def items(docs: Iterable[int], task: str = "gsm8k", table: Table = ITEMS) -> pa.RecordBatch:
    """A row per document number; its other columns follow from its key."""
    return pa.RecordBatch.from_pylist([item(doc, task, table) for doc in docs], table.schema)


def item(doc: int, task: str = "gsm8k", table: Table = ITEMS) -> dict[str, Any]:
    row: dict[str, Any] = {"task": task, "doc": doc, "text": f"question {doc} of {task}"}
    return row | ({"score": doc / 4} if table is GROWN else {})


def add(archive: Archive, docs: Iterable[int], task: str = "gsm8k", table: Table = ITEMS) -> int:
    """One commit."""
    transaction = archive.transaction()
    transaction.append(table, items(docs, task, table))
    return transaction.commit()


def docs_in(archive: Archive, **options: Any) -> list[int]:
    docs: list[int] = archive.snapshot().read(ITEMS.name, ["doc"], **options).column("doc").to_pylist()
    return docs
