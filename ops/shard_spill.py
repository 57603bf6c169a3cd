"""Rows on their way to shards: spilled to local disk in runs, read back one shard at a time."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class ShardSpill:
    """Takes batches with a shard number per row; holds at most `memory_bytes` of them, the rest lies in `directory`.

    A run is one Arrow file with one record batch per shard, so it is read back without a search.
    """

    def __init__(self, directory: Path, schema: pa.Schema, shards: int, memory_bytes: int) -> None:
        self.shards = shards
        self.rows = 0
        self._directory, self._schema, self._memory_bytes = directory, schema, memory_bytes
        self._waiting: list[tuple[pa.RecordBatch, npt.NDArray[np.int64]]] = []
        self._waiting_bytes = 0
        self._runs: list[Path] = []

    def add(self, batch: pa.RecordBatch, shard_of_row: npt.NDArray[np.int64]) -> None:
        self._waiting.append((batch, shard_of_row))
        self._waiting_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._waiting_bytes >= self._memory_bytes:
            self._spill()

    def read(self, shard: int) -> pa.Table:
        """All rows of one shard, in order of arrival."""
        self._spill()
        batches = []
        for path in self._runs:
            with pa.memory_map(str(path)) as source:
                batches.append(pa.ipc.open_file(source).get_batch(shard))
        return pa.Table.from_batches(batches, self._schema)

    def _spill(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches([batch for batch, _ in self._waiting], self._schema)
        shard_of_row = np.concatenate([shards for _, shards in self._waiting])
        order = np.argsort(shard_of_row, kind="stable")
        bounds = np.searchsorted(shard_of_row[order], np.arange(self.shards + 1))
        path = self._directory / f"run-{len(self._runs):05d}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, self._schema) as writer:
            for start, end in pairwise(bounds):
                rows = table.take(pa.array(order[start:end])).combine_chunks().to_batches()
                writer.write_batch(rows[0] if rows else pa.RecordBatch.from_pylist([], self._schema))
        self._runs.append(path)
        self._waiting, self._waiting_bytes = [], 0
