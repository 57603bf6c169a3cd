"""A poisoned shard is named, down to the row, and holds nobody up."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from infra.artifacts.writer import Writer
from infra.storage.errors import PermanentStorageError
from ops.dataflow.config import Execution
from ops.dataflow.errors import PoisonedShardsError, WorkersLostError
from ops.dataflow.flow import Dataflow
from ops.dataflow.shard import Shard, Tally
from ops.dataflow.work import Output
from ops.dataflow.workers import LOSSES
from ops.units import MiB
from tests.ops.dataflow.stages import LENGTHS, MeasureTexts, SendPairs, SumGroups, begun, input_of, measure_all, note, rows_table, sum_all


def with_text(table: pa.Table, row: int, text: str) -> pa.Table:
    texts = table["text"].to_pylist()
    texts[row] = text
    return table.set_column(3, "text", pa.array(texts))


@pytest.mark.parametrize("workers", [1, 2])
def test_poison_is_named_by_shard_row_and_id_and_the_other_shards_are_committed(tmp_path: Path, workers: int) -> None:
    tables = [rows_table(150, seed) for seed in range(4)]
    tables[1] = with_text(tables[1], 77, "bad")
    shards = input_of(tmp_path, tables)
    function, execution = MeasureTexts(str(tmp_path / "journal"), poison="bad"), Execution(workers=workers)
    with pytest.raises(PoisonedShardsError) as caught:
        measure_all(tmp_path, shards, function, execution)
    (poison,) = caught.value.poisons
    assert (poison.shard, poison.rows, poison.ids) == (shards[1].name, (77, 78), (tables[1]["id"][77].as_py(),))
    assert str(caught.value).startswith(f"lengths: 1 of 4 shards can't be done: {shards[1].name}, row 77 (id 0001")
    assert "ValueError: 1 texts are poison" in str(caught.value)
    before = begun(tmp_path / "journal")
    _, done = measure_all(tmp_path, shards, MeasureTexts(str(tmp_path / "journal")), execution, "b")
    assert begun(tmp_path / "journal")[len(before) :] == ["measure 1"], "the mended program does the poisoned shard alone"
    assert done.rows == 600


def test_two_bad_rows_that_only_fail_together_are_named_as_a_range(tmp_path: Path) -> None:
    table = with_text(with_text(rows_table(64), 10, "half"), 50, "half")
    out = Writer(str(tmp_path / "a"), scratch_url=str(tmp_path / "scratch"))
    with pytest.raises(PoisonedShardsError, match=r"rows 0 to 63 \(ids 0+ to 0+3f\)"):
        Dataflow(out, Execution()).map("pair", input_of(tmp_path / "in", [table]), fail_on_two_halves, Output(LENGTHS))


def fail_on_two_halves(shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch["text"].to_pylist().count("half") > 1:
            raise ValueError("two halves")
        yield from ()


def test_a_torn_source_is_named_before_any_bucket_is_begun(tmp_path: Path) -> None:
    shards = input_of(tmp_path, [rows_table(50, seed) for seed in range(3)])
    with pytest.raises(PoisonedShardsError, match=rf"sums: 1 of 3 .*{shards[1].name}, rows 0 to 49.*this source is torn"):
        sum_all(tmp_path, shards, SumGroups(str(tmp_path / "journal")), Execution(), emit=SendPairs(poison_source=1))
    assert begun(tmp_path / "journal") == []


@dataclass(frozen=True)
class EndWorkers:
    """Ends the process at shard 1, always."""

    journal: str
    always: bool = False

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        import os

        note(self.journal, "end", shard)
        if shard.index == 1 or self.always:
            os._exit(77)
        yield from ()


def test_a_shard_that_ends_every_worker_is_given_up_and_the_rest_goes_on(tmp_path: Path) -> None:
    shards = input_of(tmp_path, [rows_table(5, seed) for seed in range(4)])
    flow = Dataflow(Writer(str(tmp_path / "a"), scratch_url=str(tmp_path / "scratch")), Execution(workers=2))
    with pytest.raises(PoisonedShardsError, match="3 workers of 1024 MiB ended with exit code 77 on it"):
        flow.map("end", shards, EndWorkers(str(tmp_path / "journal")), Output(LENGTHS))
    told = begun(tmp_path / "journal")
    assert told.count("end 1") == LOSSES
    assert all(told.count(f"end {index}") == 1 for index in (0, 2, 3))


def test_workers_that_all_die_end_the_stage_and_not_the_machine(tmp_path: Path) -> None:
    shards = input_of(tmp_path, [rows_table(5, seed) for seed in range(9)])
    flow = Dataflow(Writer(str(tmp_path / "a"), scratch_url=str(tmp_path / "scratch")), Execution(workers=2))
    with pytest.raises((WorkersLostError, PoisonedShardsError)):
        flow.map("end", shards, EndWorkers(str(tmp_path / "journal"), always=True), Output(LENGTHS))
    assert len(begun(tmp_path / "journal")) <= LOSSES * 2 + 2


@dataclass(frozen=True)
class Hoard:
    """Holds as many bytes as its shard's first text says."""

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        import numpy as np

        for batch in batches:
            np.ones(int(batch["text"][0].as_py()), np.uint8)
        yield from ()


def test_a_shard_that_wants_more_memory_than_a_worker_may_have_fails_alone(tmp_path: Path) -> None:
    tables = [with_text(rows_table(2, seed), 0, str(size)) for seed, size in enumerate([1, 1500 * MiB, 1])]
    flow = Dataflow(Writer(str(tmp_path / "a"), scratch_url=str(tmp_path / "scratch")), Execution(workers=2))
    with pytest.raises(PoisonedShardsError, match=r"1 of 3 shards.*part-00001-of-00003.*MemoryError"):
        flow.map("hoard", input_of(tmp_path / "in", tables), Hoard(), Output(LENGTHS))


def test_a_full_disk_is_not_blamed_on_the_shard(tmp_path: Path) -> None:
    shards = input_of(tmp_path, [rows_table(5)])
    flow = Dataflow(Writer(str(tmp_path / "a"), scratch_url=str(tmp_path / "scratch")), Execution())
    with pytest.raises(PermanentStorageError):
        flow.map("full", shards, fill_the_disk, Output(LENGTHS))


def fill_the_disk(shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
    raise PermanentStorageError("the disk is full")
    yield
