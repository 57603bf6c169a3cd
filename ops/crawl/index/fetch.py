"""Phase 3, fetch: what was planned, request by request, each record verified, each task committed once.

Records that can't be had for good are counted by reason. What may work later is no outcome: such a task stays open,
the others are finished and committed, and the program ends with an error that asks to be run again.
"""

import struct
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from infra.artifacts.writer import Progress
from infra.storage.errors import PermanentStorageError, TransientStorageError
from ops.crawl.config import IndexSource
from ops.crawl.index.archives import Archives, OutOfRangeError
from ops.crawl.index.pieces import Piece, Pieces
from ops.crawl.index.plan import FetchTask, Plan, Span
from ops.crawl.index.ranges import Patience, read_range
from ops.crawl.index.reasons import ERROR_SCHEMA, FetchReason, RecordError
from ops.crawl.index.verify import Expected, Verified, verify
from ops.extract.row_buffer import RowBuffer
from ops.shards import shard_writer

MEMBERS, RECORDS, ERRORS = "members", "records.parquet", "errors.parquet"
RECORD_SCHEMA = pa.schema(
    [
        ("url", pa.string()),
        ("member_bytes", pa.int64()),
        ("payload_bytes", pa.int64()),
        ("verified_by", pa.string()),  # whose digest the payload was compared with: index, record or nothing
        ("archive", pa.string()),
        ("archive_offset", pa.int64()),
        ("archive_length", pa.int64()),
        ("content_digest", pa.string()),
        ("record_id", pa.string()),
    ]
)
HEARTBEAT_S = 0.5
ZST_DICTIONARY = b"\x5d\x2a\x4d\x18"  # a skippable frame, its size in four bytes after it


@dataclass
class Fetching:
    """One run over the tasks of a plan. `bytes_read` and `requests` are of this run alone: what was committed before costs nothing."""

    source: IndexSource
    found: pa.Table
    archives: Archives
    pieces: Pieces
    scratch: Path
    patience: Patience
    bytes_read: int = 0
    requests: int = 0
    _dictionaries: dict[str, bytes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _verifying: threading.Lock = field(default_factory=threading.Lock)  # one record is inflated at a time, however many are fetched
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self, plan: Plan, progress: Progress) -> list[Piece]:
        """Fetch every task that is not committed yet; give all pieces in the plan's order.

        Raises:
            TransientStorageError: some tasks could not be fetched now; all others are committed.
        """
        committed = {task.key: piece for task in plan.tasks if (piece := self.pieces.find(task.key)) is not None}
        todo = [task for task in plan.tasks if task.key not in committed]
        total = sum(task.stored_bytes for task in todo)
        lost: list[TransientStorageError] = []
        with ThreadPoolExecutor(self.source.connections, thread_name_prefix="fetch") as pool:
            running = {pool.submit(self._fetch_task, task): task for task in todo}
            seen = -1
            try:
                while running:
                    done, _ = wait(running, HEARTBEAT_S, FIRST_COMPLETED)
                    for future in done:
                        task = running.pop(future)
                        try:
                            committed[task.key] = future.result()
                        except TransientStorageError as error:
                            lost.append(error)
                    if self.bytes_read > seen:  # only what was read is progress: a server that stalls must look like it
                        seen = self.bytes_read
                        progress(min(seen, total), total, "bytes", records=_counted(committed), requests=self.requests)
            except BaseException:
                self._stopped.set()
                for future in running:
                    future.cancel()
                raise
        if lost:
            raise TransientStorageError(
                f"{len(lost)} of {len(plan.tasks)} fetch tasks could not be finished, the others are kept; run again. The first: {lost[0]}"
            )
        return [committed[task.key] for task in plan.tasks]

    def _fetch_task(self, task: FetchTask) -> Piece:
        out = self.pieces.begin(task.key)
        counts = {"records": 0, "errors": 0}
        with (
            out.open(MEMBERS) as members,
            shard_writer(out, RECORDS, RECORD_SCHEMA) as record_sink,
            shard_writer(out, ERRORS, ERROR_SCHEMA) as error_sink,
        ):
            records, errors = RowBuffer(RECORD_SCHEMA, record_sink), RowBuffer(ERROR_SCHEMA, error_sink)
            for row, outcome in self._outcomes(task):
                if isinstance(outcome, RecordError):
                    errors.add(error_row(row, outcome))
                    counts["errors"] += 1
                else:
                    members.write(outcome.member)
                    records.add(_record_row(row, outcome))
                    counts["records"] += 1
            records.flush()
            errors.flush()
        return self.pieces.commit(task.key, out, counts)

    def _outcomes(self, task: FetchTask) -> Iterator[tuple[dict[str, object], Verified | RecordError]]:
        for span in task.spans:
            rows = self.found.slice(span.first, span.last - span.first).to_pylist()
            yield from self._outcomes_of_span(span, rows)

    def _outcomes_of_span(self, span: Span, rows: list[dict[str, object]]) -> Iterator[tuple[dict[str, object], Verified | RecordError]]:
        path = self.scratch / f"{threading.get_ident()}"
        try:
            with path.open("wb") as sink:
                read_range(self.archives, span.archive, span.start, span.end, sink, self.patience, self._count)
            self._count(0, requests=1)
            dictionary = self._dictionary_of(span.archive)
        except OutOfRangeError as error:
            if len(rows) == 1:
                yield rows[0], RecordError(FetchReason.OUT_OF_RANGE, str(error))
                return
            for index, row in enumerate(rows):  # those before the archive's end can still be had
                start, length = _place(row)
                yield from self._outcomes_of_span(
                    Span(span.archive, start, start + length, span.first + index, span.first + index + 1), [row]
                )
            return
        except PermanentStorageError as error:
            yield from ((row, RecordError(FetchReason.REJECTED, str(error))) for row in rows)
            return
        with path.open("rb") as stored:
            for row in rows:
                start, length = _place(row)
                stored.seek(start - span.start)
                with self._verifying:
                    outcome = _judged(stored.read(length), row, self.source.max_payload_bytes, dictionary)
                yield row, outcome
        path.unlink()

    def _dictionary_of(self, archive: str) -> bytes:
        """What a `.warc.zst` archive begins with if its frames need it; empty otherwise. Read once an archive."""
        if not archive.endswith(".zst"):
            return b""
        with self._lock:
            known = self._dictionaries.get(archive)
        if known is not None:
            return known
        path = self.scratch / f"{threading.get_ident()}.head"
        with path.open("w+b") as head:
            read_range(self.archives, archive, 0, 8, head, self.patience, self._count)
            head.seek(0)
            magic, size = struct.unpack("<4sI", head.read(8))
            if magic == ZST_DICTIONARY and size <= self.source.max_record_bytes:
                read_range(self.archives, archive, 8, 8 + size, head, self.patience, self._count)
            head.seek(0)
            dictionary = head.read() if magic == ZST_DICTIONARY else b""
        path.unlink()
        with self._lock:
            self._dictionaries[archive] = dictionary
        return dictionary

    def _count(self, count: int, requests: int = 0) -> None:
        if self._stopped.is_set():
            raise TransientStorageError("the fetch was stopped")
        with self._lock:
            self.bytes_read += count
            self.requests += requests


def fetch(
    source: IndexSource,
    found: pa.Table,
    plan: Plan,
    archives: Archives,
    pieces: Pieces,
    scratch: Path,
    progress: Progress,
    patience: Patience,
) -> list[Piece]:
    """Fetch a plan; see `Fetching.run`. Closes the archives."""
    with closing(archives):
        return Fetching(source, found, archives, pieces, scratch, patience).run(plan, progress)


def error_row(row: dict[str, object], error: RecordError) -> tuple[object, ...]:
    """A row of `ERROR_SCHEMA`."""
    return row["url"], str(error.reason), error.detail[:500], row["archive"], row["archive_offset"]


def _record_row(row: dict[str, object], verified: Verified) -> tuple[object, ...]:
    measured = (row["url"], len(verified.member), verified.payload_bytes, verified.verified_by)
    return (*measured, *(row[name] for name in RECORD_SCHEMA.names[4:]))


def _judged(stored: bytes, row: dict[str, object], max_payload_bytes: int, dictionary: bytes) -> Verified | RecordError:
    expected = Expected(str(row["url"]), _text(row["content_digest"]), _text(row["record_id"]))
    try:
        return verify(stored, expected, max_payload_bytes, dictionary)
    except RecordError as error:
        return error


def _place(row: dict[str, object]) -> tuple[int, int]:
    start, length = row["archive_offset"], row["archive_length"]
    assert isinstance(start, int)
    assert isinstance(length, int)
    return start, length


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _counted(committed: dict[str, Piece]) -> int:
    return sum(int(piece.about["records"]) for piece in committed.values())
