"""One bucket on its way into the store: spilled to local disk until its size is known, then streamed out.

An artifact's files are append-only, but an `.npy` header comes first and holds the final length. So tokens wait
on local disk: memory is the same for ten documents and for ten billion.
"""

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infra.artifacts.writer import Writer
from ops.shards import ROWS_PER_BATCH, shard_writer

DOCUMENTS = pa.schema([("source", pa.string()), ("id", pa.string()), ("tokens", pa.int64()), ("bytes", pa.int64())])
COPY_BYTES = 8 << 20
FILES = 2  # that a spill keeps open: tokens and rows
OTHER_FILES = 256  # that a process may need beside them: inputs, outputs, libraries


def allow_open_spills(count: int) -> None:
    """Raise this process's bound on open files as far as so many spills need.

    Raises:
        ValueError: the machine allows no process so many.
    """
    wanted = FILES * count + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise ValueError(
            f"{count} buckets need {wanted} open files and this machine allows {hard}; ask for fewer domains, or raise `ulimit -Hn`"
        )
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class BucketSpill:
    """Collects documents of one bucket under `folder`; use as a context, `finish` inside it."""

    def __init__(self, folder: Path, dtype: str) -> None:
        folder.mkdir(parents=True)
        self.documents = self.tokens = self.bytes = 0
        self._folder, self._dtype = folder, np.dtype(dtype)
        self._tokens: IO[bytes] = (folder / "tokens").open("wb")
        self._rows = pa.ipc.new_file(folder / "rows", DOCUMENTS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def append(self, rows: pa.RecordBatch, tokens: npt.NDArray[Any]) -> None:
        """Add documents: one row each (schema `DOCUMENTS`), and their tokens one after another, ends of text included."""
        self._rows.write_batch(rows)
        self._tokens.write(memoryview(np.ascontiguousarray(tokens, self._dtype)).cast("B"))
        self.documents += rows.num_rows
        self.tokens += len(tokens)
        self.bytes += int(rows["bytes"].to_numpy().sum())

    def finish(self, out: Writer, folder: str) -> None:
        """Write `tokens.npy`, `offsets.npy` and `documents.parquet` into the artifact, and free the disk."""
        self._close()
        with out.open(f"{folder}/tokens.npy") as stream, (self._folder / "tokens").open("rb") as spilled:
            _write_header(stream, self._dtype, self.tokens)
            shutil.copyfileobj(spilled, stream, COPY_BYTES)
        with out.open(f"{folder}/offsets.npy") as stream:
            _write_header(stream, np.dtype(np.int64), self.documents + 1)
            for offsets in self._offsets():
                stream.write(memoryview(offsets).cast("B"))
        with shard_writer(out, f"{folder}/documents.parquet", DOCUMENTS) as write:
            for batch in self._spilled_rows():
                write(batch)
        shutil.rmtree(self._folder)

    def _offsets(self) -> Iterator[npt.NDArray[np.int64]]:
        end = np.zeros(1, np.int64)
        yield end
        for batch in self._spilled_rows():
            ends = end[-1] + np.cumsum(batch["tokens"].to_numpy())
            yield ends
            end = ends

    def _spilled_rows(self) -> Iterator[pa.RecordBatch]:
        """Rows in batches of exactly `ROWS_PER_BATCH`: a row's group in the Parquet file follows from its index."""
        with pa.memory_map(str(self._folder / "rows")) as mapped:
            table = pa.ipc.open_file(mapped).read_all()
            for start in range(0, table.num_rows, ROWS_PER_BATCH):
                yield from table.slice(start, ROWS_PER_BATCH).combine_chunks().to_batches()

    def _close(self) -> None:
        self._tokens.close()
        self._rows.close()


def _write_header(stream: Any, dtype: np.dtype[Any], length: int) -> None:
    np.lib.format.write_array_header_1_0(stream, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)})
