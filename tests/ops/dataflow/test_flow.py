"""The two primitives: against plain Python, and the same bytes however they are run."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.artifacts.manifest import digest_of
from infra.artifacts.writer import Writer
from infra.storage.objects import list_files
from ops.dataflow.config import Execution
from ops.dataflow.errors import PoisonedShardsError
from ops.dataflow.flow import Dataflow, Done
from ops.dataflow.keyed import Keyed
from ops.dataflow.shard import Shard, Tally, plan_key
from ops.dataflow.work import Output
from ops.units import MiB
from tests.ops.dataflow.stages import (
    GROUPS,
    LENGTHS,
    PAIRS,
    MeasureTexts,
    SendPairs,
    SumGroups,
    begun,
    input_of,
    measure_all,
    rows_table,
    sum_all,
)

EXECUTIONS = [Execution(), Execution(workers=2), Execution(workers=4), Execution(memory_bytes=256 * MiB)]


def tables_of(directory: Path, done: Done) -> list[pa.Table]:
    return [pq.read_table(directory / "a" / commit.name) for commit in done.commits]


def sums_of(tables: list[pa.Table]) -> dict[int, tuple[int, int]]:
    """What SumGroups finds, by a dictionary."""
    found: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for table in tables:
        for key, number in zip(table["key"].to_pylist(), table["number"].to_pylist(), strict=True):
            found[key] = (found[key][0] + 1, found[key][1] + number)
    return dict(found)


def test_a_map_gives_every_row_in_its_place(tmp_path: Path) -> None:
    tables = [rows_table(150, seed) for seed in range(3)]
    shards = input_of(tmp_path / "in", tables)
    _, done = measure_all(tmp_path, shards, MeasureTexts(str(tmp_path / "journal")), Execution())
    for given, made in zip(tables, tables_of(tmp_path, done), strict=True):
        assert made["id"].equals(given["id"])
        assert made["length"].to_pylist() == [len(text) for text in given["text"].to_pylist()]
    assert done.tally["chars"] == sum(len(text) for table in tables for text in table["text"].to_pylist())
    assert done.rows == 450


def test_by_key_agrees_with_a_dictionary(tmp_path: Path) -> None:
    tables = [rows_table(500, seed, hot=0.5) for seed in range(3)]
    _, done = sum_all(tmp_path, input_of(tmp_path / "in", tables), SumGroups(str(tmp_path / "journal")), Execution())
    rows = [row for table in tables_of(tmp_path, done) for row in table.to_pylist()]
    assert {row["key"]: (row["rows"], row["numbers"]) for row in rows} == sums_of(tables)
    assert len(rows) == len(sums_of(tables)), "no key is in two buckets"
    assert done.tally["rows"] == 1500


def test_workers_memory_and_the_order_of_sources_change_no_byte(tmp_path: Path) -> None:
    tables = [rows_table(700, seed, hot=0.5) for seed in range(4)]
    shards = input_of(tmp_path / "in", [*tables, rows_table(0)])
    digests = set()
    for index, execution in enumerate(EXECUTIONS):
        directory = tmp_path / str(index)
        directory.mkdir()
        measured, _ = measure_all(directory, shards, MeasureTexts(str(directory / "journal")), execution)
        turned = tuple(Shard(shard.name, place, shard.pieces) for place, shard in enumerate(shards[index:] + shards[:index]))
        summed, _ = sum_all(directory, turned, SumGroups(str(directory / "journal")), execution, "b")
        digests.add((digest_of(measured.files), digest_of(summed.files)))
    assert len(digests) == 1


@pytest.mark.parametrize("rows", [1, 900])
def test_sorting_few_buckets_at_a_time_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    shards = input_of(tmp_path / "in", [rows_table(700, seed, hot=0.5) for seed in range(2)])
    once, _ = sum_all(tmp_path / "once", shards, SumGroups(str(tmp_path / "journal")), Execution())
    monkeypatch.setattr("ops.dataflow.exchange.ROWS_PER_SORT", rows)
    often, _ = sum_all(tmp_path / "often", shards, SumGroups(str(tmp_path / "journal")), Execution())
    assert often.files == once.files


def test_empty_shards_and_empty_buckets_get_their_files(tmp_path: Path) -> None:
    shards = input_of(tmp_path / "in", [rows_table(0), rows_table(3, keys=1), rows_table(0)])
    _, measured = measure_all(tmp_path, shards, MeasureTexts(str(tmp_path / "journal")), Execution())
    assert [table.num_rows for table in tables_of(tmp_path, measured)] == [0, 3, 0]
    (tmp_path / "sums").mkdir()
    _, summed = sum_all(tmp_path / "sums", shards, SumGroups(str(tmp_path / "journal")), Execution(workers=2), buckets=9)
    tables = tables_of(tmp_path / "sums", summed)
    assert sorted(table.num_rows for table in tables) == [0] * 8 + [1]
    assert all(table.schema.equals(GROUPS) for table in tables)


def test_no_source_at_all_still_gives_every_bucket(tmp_path: Path) -> None:
    _, done = sum_all(tmp_path, (), SumGroups(str(tmp_path / "journal")), Execution())
    assert [table.num_rows for table in tables_of(tmp_path, done)] == [0] * 5


def test_rows_that_key_and_order_do_not_tell_apart_are_refused(tmp_path: Path) -> None:
    shards = input_of(tmp_path / "in", [rows_table(20), rows_table(20)])
    with pytest.raises(PoisonedShardsError, match=r"AmbiguousOrderError.*'number': \d+.*name order columns"):
        sum_all(tmp_path, shards, SumGroups(str(tmp_path / "journal")), Execution())


@pytest.mark.parametrize("engine_rows", [1, 7, 10_000])
def test_ascent_is_checked_across_batches(engine_rows: int) -> None:
    from ops.dataflow.errors import AmbiguousOrderError
    from ops.dataflow.keyed import strictly_ordered

    rows = rows_table(100, keys=4).select(["key", "number"]).sort_by([("key", "ascending"), ("number", "ascending")])
    assert sum(b.num_rows for b in strictly_ordered(iter(rows.to_batches(engine_rows)), PAIRS, "b")) == 100
    swapped = rows.take([*range(49), 50, 49, *range(51, 100)])
    with pytest.raises(AmbiguousOrderError):
        list(strictly_ordered(iter(swapped.to_batches(engine_rows)), PAIRS, "b"))


def test_an_attempt_that_finds_everything_committed_reads_nothing(tmp_path: Path) -> None:
    shards = input_of(tmp_path / "in", [rows_table(30, seed) for seed in range(2)])
    journal = tmp_path / "journal"
    first, _ = sum_all(tmp_path, shards, SumGroups(str(journal)), Execution())
    before = begun(journal)
    second, done = sum_all(tmp_path, shards, SumGroups(str(journal)), Execution(), "b", emit=SendPairs(poison_source=0))
    assert begun(journal) == before
    assert second.files == first.files
    assert done.tally["rows"] == 60


def test_a_stage_that_yields_another_schema_than_it_declares_says_so(tmp_path: Path) -> None:
    flow = Dataflow(Writer(str(tmp_path / "a"), scratch_url=str(tmp_path / "scratch")), Execution())
    with pytest.raises(PoisonedShardsError, match="TypeError: the stage yields id: string and declares id: string length: int64"):
        flow.map("wrong", input_of(tmp_path / "in", [rows_table(3)]), ids_alone, Output(LENGTHS))


def ids_alone(shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["id"])


def test_shards_are_committed_and_published_in_object_storage_too(tmp_path: Path) -> None:
    shards = input_of(tmp_path / "in", [rows_table(30, seed) for seed in range(2)])
    here, _ = sum_all(tmp_path, shards, SumGroups(str(tmp_path / "journal")), Execution())
    root = f"memory://{tmp_path.name}"
    out = Writer(f"{root}/a", scratch_url=f"{root}/scratch")
    flow = Dataflow(out, Execution())
    names = [entry.name for entry in here.files]
    flow.publish(
        flow.by_key("sums", shards, SendPairs(), PAIRS, names, SumGroups(str(tmp_path / "journal")), Output(GROUPS, group_rows=64))
    )
    assert out.files == here.files
    assert list_files(f"{root}/a") == {entry.name: entry.size for entry in here.files}


def test_progress_counts_rows_and_never_goes_back(tmp_path: Path) -> None:
    told: list[int] = []
    out = Writer(str(tmp_path / "a"), scratch_url=str(tmp_path / "scratch"), progress=lambda done, total, unit, **_: told.append(done))
    shards = input_of(tmp_path / "in", [rows_table(30, seed) for seed in range(3)])
    Dataflow(out, Execution(workers=2), 90).map("lengths", shards, MeasureTexts(str(tmp_path / "journal")), Output(LENGTHS))
    assert told == [30, 60, 90]


def count_up(shard: Shard, batches: Iterator[pa.RecordBatch], _: Tally) -> Iterator[pa.RecordBatch]:
    """Rows of its own: the shard has no pieces to read."""
    assert list(batches) == []
    for number in range(3):
        yield pa.record_batch([[shard.name], [number]], schema=LENGTHS)


@pytest.mark.parametrize("execution", [Execution(), Execution(workers=2)], ids=["here", "in processes"])
def test_a_function_that_reads_for_itself_is_alive_with_every_batch_that_it_yields(tmp_path: Path, execution: Execution) -> None:
    told: list[int] = []
    out = Writer(str(tmp_path / "a"), scratch_url=str(tmp_path / "scratch"), progress=lambda done, total, unit, **_: told.append(done))
    Dataflow(out, execution).map("numbers", [Shard("a", 0), Shard("b", 1)], count_up, Output(LENGTHS))
    assert told == [0] * 6, "signs of life, and no rows of an input"


def test_every_commit_is_told_as_a_checkpoint(tmp_path: Path) -> None:
    saved: list[None] = []
    out = Writer(str(tmp_path / "a"), scratch_url=str(tmp_path / "scratch"), saved=lambda: saved.append(None))
    shards = input_of(tmp_path / "in", [rows_table(3, seed) for seed in range(3)])
    Dataflow(out, Execution()).map("lengths", shards, MeasureTexts(str(tmp_path / "journal")), Output(LENGTHS))
    assert len(saved) == 3


def test_plans_that_differ_have_different_keys() -> None:
    shard = Shard("a", 0)
    assert len({plan_key(shard), plan_key(shard, shard), plan_key(Shard("b", 0)), plan_key(shard, 64)}) == 4
    assert isinstance(PAIRS, Keyed)
