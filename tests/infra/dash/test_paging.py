"""Pages by key over a real archive: complete, in order, and steady while others write."""

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.archive.archive import Archive
from infra.archive.snapshot import Snapshot
from infra.archive.tables import Table
from infra.dash.paging import page_of, rows_of

ITEMS = Table(
    "items",
    pa.schema([("task", pa.string()), ("doc", pa.string()), ("trial", pa.int32()), ("passed", pa.bool_()), ("text", pa.string())]),
    key=("task", "doc", "trial"),
)


KEYS = st.tuples(st.sampled_from(["arc", "gsm8k", "é"]), st.text(alphabet="ab\u2028é1", max_size=2), st.integers(0, 2))


def everything(batch: pa.RecordBatch) -> pa.Array:
    return pa.array([True] * batch.num_rows)


def passed(batch: pa.RecordBatch) -> pa.Array:
    return pc.equal(batch["passed"], True)


def archived(folder: Path, rows: list[dict[str, Any]], commits: int = 3) -> Archive:
    archive = Archive(str(folder))
    for part in range(commits):
        with archive.transaction() as transaction:
            transaction.append(ITEMS, pa.RecordBatch.from_pylist(rows[part::commits], ITEMS.schema))
    return archive


def pages(snapshot: Snapshot, limit: int, wanted: Any = everything) -> list[list[dict[str, Any]]]:
    found, after = [], None
    while True:
        rows, has_more = page_of(snapshot, "items", ["text"], after=after, limit=limit, wanted=wanted, judged_by=("passed",))
        found.append(rows)
        if not has_more:
            return found
        after = tuple(rows[-1][name] for name in ITEMS.key)


@settings(max_examples=25, deadline=None)
@given(
    keys=st.sets(KEYS, max_size=25),
    limit=st.integers(1, 7),
)
def test_pages_together_are_every_row_once_in_the_order_of_the_key(
    tmp_path_factory: pytest.TempPathFactory, keys: set[tuple[str, str, int]], limit: int
) -> None:
    rows = [{"task": t, "doc": d, "trial": n, "passed": n == 1, "text": f"{t}/{d}/{n}"} for t, d, n in keys]
    snapshot = archived(tmp_path_factory.mktemp("paging") / "archive", rows).snapshot()
    in_order = sorted(rows, key=lambda row: (row["task"].encode(), row["doc"].encode(), row["trial"]))
    found = pages(snapshot, limit)
    assert [row["text"] for row in itertools.chain(*found)] == [row["text"] for row in in_order]
    assert all(len(page) == limit for page in found[:-1])
    right = [row["text"] for row in itertools.chain(*pages(snapshot, limit, passed))]
    assert right == [row["text"] for row in in_order if row["passed"]]


def test_rows_that_come_later_move_no_page(tmp_path: Path) -> None:
    rows = [{"task": "arc", "doc": f"{n:02}", "trial": 0, "passed": None, "text": ""} for n in range(0, 20, 2)]
    archive = archived(tmp_path / "archive", rows)
    first, _ = page_of(archive.snapshot(), "items", [], after=None, limit=4, wanted=everything, judged_by=())
    late = [{"task": "arc", "doc": "01", "trial": 0, "passed": None, "text": ""}]
    with archive.transaction() as transaction:
        transaction.append(ITEMS, pa.RecordBatch.from_pylist(late, ITEMS.schema))
    after = tuple(first[-1][name] for name in ITEMS.key)
    second, _ = page_of(archive.snapshot(), "items", [], after=after, limit=4, wanted=everything, judged_by=())
    assert [row["doc"] for row in second] == ["08", "10", "12", "14"]


@pytest.mark.parametrize("key", [["arc"], ["arc", 1, 0], ["arc", "1", "0"], ["arc", "1", 0, "more"]])
def test_what_is_no_key_is_refused_with_the_columns(tmp_path: Path, key: list[Any]) -> None:
    snapshot = archived(tmp_path / "archive", [{"task": "arc", "doc": "1", "trial": 0, "passed": None, "text": ""}], 1).snapshot()
    with pytest.raises(ValueError, match="its columns are task, doc, trial"):
        page_of(snapshot, "items", [], after=key, limit=1, wanted=everything, judged_by=())
    with pytest.raises(ValueError, match="is no key"):
        rows_of(snapshot, "items", [], [key])


def test_a_key_that_is_not_there_gives_no_row_and_numbers_out_of_range_are_refused(tmp_path: Path) -> None:
    snapshot = archived(tmp_path / "archive", [{"task": "arc", "doc": "1", "trial": 0, "passed": None, "text": "x"}], 1).snapshot()
    assert rows_of(snapshot, "items", ["text"], [("arc", "2", 0)]) == []
    assert rows_of(snapshot, "items", ["text"], [("arc", "1", 0)]) == [{"task": "arc", "doc": "1", "trial": 0, "text": "x"}]
    with pytest.raises(ValueError, match=r"too large|out of bounds|not in range|overflow"):
        page_of(snapshot, "items", [], after=("arc", "1", 2**40), limit=1, wanted=everything, judged_by=())
