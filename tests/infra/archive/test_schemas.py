"""Tables grow by nullable columns, and everything else about them stays."""

import pyarrow as pa
import pytest

from infra.archive.archive import Archive
from infra.archive.errors import (
    SchemaConflictError,
)
from infra.archive.tables import Table
from tests.infra.archive.builders import GROWN, ITEMS, SCORED, add, docs_in, items


def test_a_table_grows_by_nullable_columns_in_either_direction(archive: Archive) -> None:
    add(archive, [1])
    add(archive, [2], table=GROWN)
    add(archive, [3])
    found = archive.snapshot()
    assert found.read("items", ["doc", "score"]).to_pydict() == {"doc": [1, 2, 3], "score": [None, 0.5, None]}
    assert found.read("items", ["score", "_commit"]).to_pydict() == {"score": [None, 0.5, None], "_commit": [1, 2, 3]}
    assert found.schema("items").names == ["task", "doc", "text", "score"]


def test_two_writers_may_add_the_same_column_and_not_two_types_of_it(archive: Archive) -> None:
    racing = [Archive(archive.url).transaction() for _ in range(3)]
    for doc, (transaction, table) in enumerate(zip(racing, (GROWN, GROWN, SCORED), strict=True)):
        transaction.append(table, items([doc], table=table))
        transaction.prepare()
    racing[0].commit()
    racing[1].commit()
    with pytest.raises(SchemaConflictError, match=r"table 'items', column 'score': it is double and was declared as string; a type never"):
        racing[2].commit()
    assert docs_in(archive) == [0, 1]


def test_declarations_that_do_not_fit_are_refused_by_column(here: Archive) -> None:
    required = ITEMS.schema.append(pa.field("kind", pa.string(), nullable=False))
    with here.transaction() as transaction:
        transaction.append(Table("items", required, ITEMS.key), pa.table({"task": ["a"], "doc": [1], "text": ["b"], "kind": ["c"]}))
    conflicts = {
        "column 'kind': it is required and the new declaration drops it": ITEMS,
        "column 'more': a column that is added must be nullable": Table(
            "items", required.append(pa.field("more", pa.string(), nullable=False)), ITEMS.key
        ),
        "column 'kind': it is required and the new declaration lets it be null": Table(
            "items", ITEMS.schema.append(pa.field("kind", pa.string())), ITEMS.key
        ),
        "its primary key is": Table("items", required, ("task",)),
    }
    for message, table in conflicts.items():
        transaction = here.transaction()
        transaction.append(table, table.schema.empty_table())
        with pytest.raises(SchemaConflictError, match=message):
            transaction.commit()
    assert here.snapshot().number == 1


def test_rows_that_do_not_fit_their_declaration_are_refused_by_column(here: Archive) -> None:
    row = {"task": ["a"], "doc": [1], "text": ["b"]}
    unfit = {
        "column 'x': the rows have it": row | {"x": [1]},
        "column 'doc': it is int64 and the rows have string": row | {"doc": ["1"]},
        "column 'doc': it is required and the rows do not have it": {"task": ["a"]},
        "column 'task': it is required and null in row 1": {"task": ["a", None], "doc": [1, 2]},
    }
    for message, rows in unfit.items():
        with pytest.raises(SchemaConflictError, match=message), here.transaction() as transaction:
            transaction.append(ITEMS, pa.table(rows))
    assert here.snapshot().tables == ()


def test_tables_that_can_not_be_are_refused() -> None:
    schema = ITEMS.schema
    for message, make in {
        "choose another": lambda: Table("Items", schema, ("doc",)),
        "one column or more": lambda: Table("items", schema, ()),
        "the primary key names it": lambda: Table("items", schema, ("id",)),
        "keys are strings or integers": lambda: Table("items", schema.append(pa.field("x", pa.float64())), ("x",)),
        "belong to the archive": lambda: Table("items", schema.append(pa.field("_commit", pa.int64())), ("doc",)),
    }.items():
        with pytest.raises(SchemaConflictError, match=message):
            make()


def test_types_survive_storage_and_compaction(here: Archive) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int32()),
            pa.field("metrics", pa.map_(pa.string(), pa.float64())),
            pa.field("choices", pa.list_(pa.struct([("text", pa.string()), ("loglik", pa.float64())]))),
            pa.field("raw", pa.binary()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("large", pa.large_string()),
        ]
    )
    table = Table("typed", schema, key=("id",))
    row = {"metrics": [("acc", 0.5), ("nan", float("inf"))], "choices": [{"text": "a", "loglik": -1.5}], "raw": b"\0\xff", "large": "x"}
    for number in range(3):
        with here.transaction() as transaction:
            transaction.append(table, pa.RecordBatch.from_pylist([{"id": number, **(row if number else {})}], schema))
    before = here.snapshot().read("typed")
    assert here.compact() == 1
    assert here.snapshot().read("typed").equals(before)
    assert before.schema.equals(table.schema)
    assert before.to_pylist()[1]["metrics"] == row["metrics"]
