"""Payloads of a raw artifact that did not come out of a WARC: `files-NNNNN.parquet`, and what could not be read."""

from contextlib import ExitStack
from types import TracebackType
from typing import Self

import pyarrow as pa

from infra.artifacts.writer import Writer
from ops.extract.rejects import REJECT_SCHEMA, Reason, Reject, reject_row
from ops.extract.row_buffer import RowBuffer
from ops.shards import shard_writer

PAYLOAD_SCHEMA = pa.schema([("uri", pa.string()), ("media_type", pa.string()), ("payload", pa.binary())])
FILE_BYTES = 256 << 20  # one file's worth of payload, so that extraction can be cut along files


class PayloadWriter:
    """Collects payloads and rejects; rolls files by size. Order and batching depend on the payloads alone."""

    def __init__(self, out: Writer) -> None:
        self._out = out
        self._rejects_file, self._payload_file = ExitStack(), ExitStack()
        self._reject_rows = RowBuffer(REJECT_SCHEMA, self._rejects_file.enter_context(shard_writer(out, "rejects.parquet", REJECT_SCHEMA)))
        self._payload_rows = self._open_file(0)
        self._files, self._file_bytes = 1, 0
        self.payloads = self.payload_bytes = self.rejects = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None:
            self._payload_rows.flush()
            self._reject_rows.flush()
        self._payload_file.__exit__(kind, error, traceback)
        self._rejects_file.__exit__(kind, error, traceback)

    def add(self, uri: str, media_type: str, payload: bytes) -> None:
        if self._file_bytes >= FILE_BYTES:
            self._payload_rows.flush()
            self._payload_file.close()
            self._payload_rows = self._open_file(self._files)
            self._files, self._file_bytes = self._files + 1, 0
        self._payload_rows.add((uri, media_type, payload), len(payload))
        self._file_bytes += len(payload)
        self.payloads += 1
        self.payload_bytes += len(payload)

    def reject(self, uri: str, reason: Reason, detail: str) -> None:
        self._reject_rows.add(reject_row(Reject(uri=uri, reason=reason, detail=detail)))
        self.rejects += 1

    def _open_file(self, index: int) -> RowBuffer:
        sink = self._payload_file.enter_context(shard_writer(self._out, f"files-{index:05d}.parquet", PAYLOAD_SCHEMA))
        return RowBuffer(PAYLOAD_SCHEMA, sink)
