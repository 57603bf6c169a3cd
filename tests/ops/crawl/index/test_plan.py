"""Plans: every wanted record in exactly one request, requests disjoint, and as few of them as the gap limit allows."""

import itertools

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ops.crawl.index.discover import ORDER
from ops.crawl.index.plan import Plan, plan_fetch
from ops.crawl.index.selection import DISCOVERY_SCHEMA


def found(places: list[tuple[str, int, int]]) -> pa.Table:
    """Discovered rows at (archive, offset, length), sorted as discovery sorts them."""
    rows = [(f"http://x.example/{i}", *place, None, None, "text/html", None, ["declared"]) for i, place in enumerate(places)]
    columns = zip(*rows, strict=True) if rows else ([] for _ in DISCOVERY_SCHEMA)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, DISCOVERY_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=DISCOVERY_SCHEMA).sort_by(ORDER)


def plan(rows: pa.Table, gap: int = 100, task: int = 1000, largest: int = 500) -> Plan:
    return plan_fetch(rows, gap_bytes=gap, task_bytes=task, max_record_bytes=largest)


def spans_of(made: Plan) -> list[tuple[str, int, int]]:
    return [(span.archive, span.start, span.end) for task in made.tasks for span in task.spans]


def test_neighbours_within_the_gap_are_asked_for_together():
    rows = found([("a", 0, 50), ("a", 150, 50), ("a", 301, 50), ("b", 0, 50)])
    assert spans_of(plan(rows)) == [("a", 0, 200), ("a", 301, 351), ("b", 0, 50)]


def test_a_dense_archive_is_cut_where_a_task_is_full():
    rows = found([("a", at, 100) for at in range(0, 3000, 100)])
    made = plan(rows)
    assert spans_of(made) == [("a", 0, 1000), ("a", 1000, 2000), ("a", 2000, 3000)]
    assert [task.stored_bytes for task in made.tasks] == [1000, 1000, 1000]


def test_rows_that_claim_the_same_bytes_differently_are_refused_and_the_others_are_not():
    rows = found(
        [("a", 0, 100), ("a", 50, 100), ("a", 200, 100), ("a", 200, 100), ("b", 0, 400), ("b", 10, 20), ("b", 300, 50), ("b", 400, 9)]
    )
    made = plan(rows)
    assert made.overlapping == (0, 1, 4, 5, 6)
    assert spans_of(made) == [("a", 200, 300), ("b", 400, 409)]


def test_a_record_too_long_is_refused_and_shields_nobody():
    made = plan(found([("a", 0, 501), ("a", 10, 20)]))
    assert made.oversized == (0,)
    assert spans_of(made) == [("a", 10, 30)]


def test_task_keys_name_what_is_asked_for():
    rows = found([("a", 0, 50), ("a", 150, 50)])
    assert plan(rows).tasks[0].key == plan(rows).tasks[0].key
    assert plan(rows).tasks[0].key != plan(found([("a", 0, 50), ("a", 151, 50)])).tasks[0].key
    assert plan(rows).tasks[0].key != plan(rows, gap=10).tasks[0].key


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5000), st.integers(1, 700)), max_size=60),
    st.integers(0, 800),
    st.integers(1, 2000),
)
def test_every_row_is_in_exactly_one_span_or_refused(places: list[tuple[str, int, int]], gap: int, task: int):
    rows = found(places)
    made = plan(rows, gap, task)
    spans = [span for one in made.tasks for span in one.spans]
    planned = [row for span in spans for row in range(span.first, span.last)]
    assert sorted([*planned, *made.overlapping, *made.oversized]) == list(range(rows.num_rows))
    records = list(zip(*(rows[name].to_pylist() for name in ("archive", "archive_offset", "archive_length")), strict=True))
    for span in spans:
        for archive, offset, length in records[span.first : span.last]:
            assert archive == span.archive
            assert span.start <= offset
            assert offset + length <= span.end
    by_place = sorted((span.archive, span.start, span.end) for span in spans)
    assert all(one[0] != two[0] or one[2] <= two[1] for one, two in itertools.pairwise(by_place))
    assert all(span.end - span.start <= task + 500 for span in spans)  # a task, and the record that it ends in
