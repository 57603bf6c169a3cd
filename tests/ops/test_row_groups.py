"""Row groups follow from the rows, and never from how they were batched."""

import pyarrow as pa
import pytest

from ops.row_groups import RowGroups, row_bytes

SCHEMA = pa.schema([("text", pa.string()), ("ids", pa.list_(pa.int32()))])


def rows_of(sizes: list[int]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(["x" * size for size in sizes]), pa.array([[1] * (size // 4) for size in sizes], pa.list_(pa.int32()))], schema=SCHEMA
    )


def groups_of(rows: pa.RecordBatch, batch_rows: int, group_rows: int, group_bytes: int) -> list[int]:
    groups: list[pa.RecordBatch] = []
    gathered = RowGroups(SCHEMA, group_rows, groups.append, group_bytes)
    for start in range(0, rows.num_rows, batch_rows):
        gathered.add(rows.slice(start, batch_rows))
    gathered.flush()
    assert pa.Table.from_batches(groups, SCHEMA).equals(pa.Table.from_batches([rows]))
    assert gathered.rows == rows.num_rows
    return [group.num_rows for group in groups]


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 7, 100])
def test_groups_end_by_rows_or_by_bytes_whatever_the_batches(batch_rows: int) -> None:
    sizes = [0, 4, 8, 0, 4, 400, 96, 4, 4, 600, 600, 0, 0, 4, 4, 4, 4, 4]
    assert groups_of(rows_of(sizes), batch_rows, 5, 1_000) == [5, 3, 2, 1, 5, 2]
    assert groups_of(rows_of([4] * 12), batch_rows, 4, 1_000) == [4, 4, 4]


def test_a_row_weighs_its_texts_and_lists_and_a_null_nothing() -> None:
    rows = pa.record_batch([pa.array(["é", None, ""]), pa.array([[1, 2], [], None], pa.list_(pa.int32()))], schema=SCHEMA)
    assert row_bytes(rows).tolist() == [10, 0, 0]
    assert row_bytes(rows.slice(1)).tolist() == [0, 0]
