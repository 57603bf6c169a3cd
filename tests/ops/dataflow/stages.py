"""Stage functions for tests: small, picklable, and able to die where they are told."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.artifacts.writer import Writer
from ops.dataflow.config import Execution
from ops.dataflow.flow import Dataflow, Done
from ops.dataflow.keyed import Keyed
from ops.dataflow.shard import Shard, Tally, whole_shards
from ops.dataflow.work import Output
from ops.shards import shard_name, write_table
from tests.builders import publish

ROWS = pa.schema([("id", pa.string()), ("key", pa.uint64()), ("number", pa.int64()), ("text", pa.string())])
LENGTHS = pa.schema([("id", pa.string()), ("length", pa.int64())])
PAIRS = Keyed(pa.schema([("key", pa.uint64()), ("number", pa.int64())]), "key", ("number",))
GROUPS = pa.schema([("key", pa.uint64()), ("rows", pa.int64()), ("numbers", pa.int64())])


@dataclass(frozen=True)
class Death:
    """Who dies when a shard is begun: nobody has to, and each dies once."""

    who: Literal["worker", "driver"]
    shard: int
    marker: str

    def come(self, shard: Shard) -> None:
        if shard.index == self.shard and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid() if self.who == "worker" else int(os.environ.get("DRIVER_PID", os.getpid())), signal.SIGKILL)
            if self.who == "driver":
                signal.pause()


@dataclass(frozen=True)
class Gate:
    """Lets nobody pass before a file is there."""

    path: str

    def come(self, shard: Shard) -> None:
        end = time.monotonic() + 120
        while not Path(self.path).exists():
            assert time.monotonic() < end, f"nobody opened {self.path}"
            time.sleep(0.05)


@dataclass(frozen=True)
class MeasureTexts:
    """The length of every text. Every shard that is begun becomes a line of `journal`."""

    journal: str
    deaths: tuple[Death | Gate, ...] = ()
    poison: str = ""

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        note(self.journal, "measure", shard)
        for death in self.deaths:
            death.come(shard)
        for batch in batches:
            if self.poison and (bad := pc.sum(pc.equal(batch["text"], self.poison)).as_py()):
                raise ValueError(f"{bad} texts are poison")
            lengths = pc.utf8_length(batch["text"]).cast(pa.int64())
            tally["chars"] += pc.sum(lengths).as_py() or 0
            yield pa.record_batch([batch["id"], lengths], schema=LENGTHS)


@dataclass(frozen=True)
class SendPairs:
    poison_source: int = -1

    def __call__(self, source: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if source.index == self.poison_source:
                raise ValueError("this source is torn")
            yield batch.select(["key", "number"])


@dataclass(frozen=True)
class SumGroups:
    """Rows and the sum of numbers of every key, however long its run is."""

    journal: str
    deaths: tuple[Death | Gate, ...] = ()

    def __call__(self, shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
        note(self.journal, "sum", shard)
        for death in self.deaths:
            death.come(shard)
        waiting: tuple[int, int, int] | None = None
        for batch in batches:
            keys, numbers = batch["key"].to_numpy(), batch["number"].to_numpy()
            starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
            rows, sums = np.diff(np.append(starts, len(keys))), np.add.reduceat(numbers, starts)
            groups = list(zip(keys[starts].tolist(), rows.tolist(), sums.tolist(), strict=True))
            if waiting is not None and groups[0][0] == waiting[0]:
                groups[0] = (waiting[0], groups[0][1] + waiting[1], groups[0][2] + waiting[2])
            elif waiting is not None:
                groups.insert(0, waiting)
            waiting = groups.pop()
            tally["rows"] += batch.num_rows
            yield _groups(groups)
        yield _groups([waiting] if waiting is not None else [])


def _groups(rows: list[tuple[int, int, int]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.record_batch([pa.array(column, field.type) for column, field in zip(columns, GROUPS, strict=True)], schema=GROUPS)


def note(journal: str, what: str, shard: Shard) -> None:
    with open(journal, "a") as stream:
        stream.write(f"{what} {shard.index} {os.getpid()}\n")


def begun(journal: Path) -> list[str]:
    """`measure 3`, ...: what was begun, in order of time."""
    return [line.rpartition(" ")[0] for line in journal.read_text().splitlines()] if journal.exists() else []


def rows_table(count: int, seed: int = 0, *, keys: int = 50, hot: float = 0.0) -> pa.Table:
    """Rows of random texts; `hot` is the share of rows that have one and the same key."""
    random = np.random.default_rng(seed)
    key = random.integers(0, keys, count).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    key[random.random(count) < hot] = np.uint64(7)
    texts = [f"text {n} " + "é" * int(n % 7) for n in range(count)]
    ids = [f"{seed:04x}{n:028x}" for n in range(count)]
    numbers = np.arange(count) + seed * 1_000_000
    return pa.table([pa.array(ids), pa.array(key), pa.array(numbers), pa.array(texts)], schema=ROWS)


def input_of(directory: Path, tables: list[pa.Table]) -> tuple[Shard, ...]:
    out = Writer(str(directory / "attempt"), scratch_url=str(directory / "scratch"))
    names = [shard_name(index, len(tables)) for index in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        write_table(out, name, table)
    return whole_shards(publish(directory, out, {}), names, ROWS.names)


def measure_all(
    directory: Path, shards: tuple[Shard, ...], function: MeasureTexts, execution: Execution, attempt: str = "a"
) -> tuple[Writer, Done]:
    """One attempt at measuring, and what it would publish."""
    out = Writer(str(directory / attempt), scratch_url=str(directory / "scratch"))
    flow = Dataflow(out, execution)
    done = flow.map("lengths", shards, function, Output(LENGTHS, group_rows=64))
    flow.publish(done)
    return out, done


def sum_all(
    directory: Path,
    shards: tuple[Shard, ...],
    function: SumGroups,
    execution: Execution,
    attempt: str = "a",
    *,
    buckets: int = 5,
    emit: SendPairs | None = None,
) -> tuple[Writer, Done]:
    """One attempt at summing by key."""
    out = Writer(str(directory / attempt), scratch_url=str(directory / "scratch"))
    flow = Dataflow(out, execution)
    names = [shard_name(index, buckets) for index in range(buckets)]
    done = flow.by_key("sums", shards, emit or SendPairs(), PAIRS, names, function, Output(GROUPS, group_rows=64))
    flow.publish(done)
    return out, done
