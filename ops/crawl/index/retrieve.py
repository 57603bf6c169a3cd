"""An `index` source, from its index to WARC files: discover, plan, fetch, and the pieces put together in the index's order."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.artifacts.writer import Writer
from infra.storage.errors import PermanentStorageError
from ops.crawl.config import IndexSource
from ops.crawl.index.archives import open_archives
from ops.crawl.index.discover import Discovery, discover
from ops.crawl.index.fetch import ERRORS, MEMBERS, RECORDS, error_row, fetch
from ops.crawl.index.pieces import Piece, Pieces
from ops.crawl.index.plan import Plan, plan_fetch
from ops.crawl.index.ranges import Patience
from ops.crawl.index.reasons import ERROR_SCHEMA, FetchReason, RecordError
from ops.crawl.listing import Entry, SourceError
from ops.extract.row_buffer import RowBuffer
from ops.shards import shard_writer, write_table

RECORDS_FILE = "records.parquet"
ORIGIN_SCHEMA = pa.schema(
    [
        ("url", pa.string()),
        ("warc_file", pa.string()),
        ("warc_offset", pa.int64()),
        ("warc_length", pa.int64()),
        ("payload_bytes", pa.int64()),
        ("verified_by", pa.string()),
        ("archive", pa.string()),
        ("archive_offset", pa.int64()),
        ("archive_length", pa.int64()),
        ("content_digest", pa.string()),
        ("record_id", pa.string()),
    ]
)
"""Where each record of `warc/*` lies, and which bytes of which archive of the crawl it was."""


@dataclass(frozen=True)
class Retrieved:
    """index_rows = records + errors + repeated + the sum of `left_out`."""

    index_rows: int
    records: int
    payload_bytes: int
    repeated: int
    left_out: dict[str, int]
    errors: dict[str, int]


def retrieve(source: IndexSource, observed: str, entries: list[Entry], out: Writer, patience: Patience | None = None) -> Retrieved:
    """Fetch the pages of a crawl that the index names and the source wants.

    Args:
        out: gets `warc/NNNNN.warc.gz`, the records in the order of (archive, offset), each a gzip member; `records.parquet`
            (`ORIGIN_SCHEMA`); `fetch_errors.parquet` (`ERROR_SCHEMA`); `discovery.parquet`, the wanted rows of the index.
            Its scratch space keeps what was discovered and fetched, so that a job that is started again goes on.

    Raises:
        SourceError: the index can't be read, names nothing that is wanted, or no record of it could be had.
        TransientStorageError: some archives could not be read now; what could is kept.
        PermanentStorageError: what was kept was damaged since.
    """
    pieces = Pieces(f"{out.scratch_url}/crawl")
    discovery = discover(source, observed, entries, pieces, out.progress)
    if discovery.found.num_rows == 0:
        raise SourceError(
            f"crawl {source.crawl}: none of {discovery.index_rows} rows of the index is wanted ({discovery.left_out}); widen the source"
        )
    plan = plan_fetch(discovery.found, gap_bytes=source.gap_bytes, task_bytes=source.task_bytes, max_record_bytes=source.max_record_bytes)
    with out.scratch_folder() as folder:
        fetched = fetch(
            source, discovery.found, plan, open_archives(source), pieces, folder, out.progress, patience or Patience(source.max_stalls)
        )
    write_table(out, "discovery.parquet", discovery.found)
    errors = _write_errors(source, discovery, plan, fetched, out)
    records, payload_bytes = _write_records(source, fetched, out)
    if records == 0:
        raise SourceError(f"crawl {source.crawl}: no record could be had ({errors}); check `archive` and that the index belongs to it")
    retrieved = Retrieved(discovery.index_rows, records, payload_bytes, discovery.repeated, discovery.left_out, errors)
    accounted = records + sum(errors.values()) + discovery.repeated + sum(discovery.left_out.values())
    if accounted != discovery.index_rows:
        raise AssertionError(
            f"the index has {discovery.index_rows} rows and {accounted} are accounted for; the crawl must not be published"
        )
    return retrieved


def _write_records(source: IndexSource, fetched: list[Piece], out: Writer) -> tuple[int, int]:
    """Copy the members into rolled files. Where a file ends depends on the records alone, not on who fetched them together."""
    count = payload_bytes = 0
    with shard_writer(out, RECORDS_FILE, ORIGIN_SCHEMA) as sink, _Rolling(out, source.warc_bytes) as warcs:
        origins = RowBuffer(ORIGIN_SCHEMA, sink)
        for piece in fetched:
            digest = hashlib.sha256()
            with piece.open(MEMBERS) as members:
                for row in _rows(piece, RECORDS):
                    member = members.read(row["member_bytes"])
                    digest.update(member)
                    name, offset = warcs.write(member)
                    place = (row["url"], name, offset, len(member), row["payload_bytes"], row["verified_by"])
                    origins.add((*place, *(row[key] for key in ORIGIN_SCHEMA.names[6:])))
                    count += 1
                    payload_bytes += row["payload_bytes"]
            if digest.hexdigest() != piece.sha256_of(MEMBERS):
                raise PermanentStorageError(f"{piece.url}/{MEMBERS} is not what was committed; remove {out.scratch_url} and run again")
        origins.flush()
    return count, payload_bytes


def _write_errors(source: IndexSource, discovery: Discovery, plan: Plan, fetched: list[Piece], out: Writer) -> dict[str, int]:
    reasons: Counter[str] = Counter()
    with shard_writer(out, "fetch_errors.parquet", ERROR_SCHEMA) as sink:
        rows = RowBuffer(ERROR_SCHEMA, sink)
        for places, reason, detail in (
            (plan.overlapping, FetchReason.OVERLAP, "another row of the index claims some of these bytes"),
            (plan.oversized, FetchReason.TOO_LARGE, f"stored in more than max_record_bytes, {source.max_record_bytes}"),
        ):
            for row in discovery.found.take(list(places)).to_pylist() if places else []:
                rows.add(error_row(row, RecordError(reason, detail)))
                reasons[str(reason)] += 1
        for piece in fetched:
            for row in _rows(piece, ERRORS):
                rows.add(tuple(row[name] for name in ERROR_SCHEMA.names))
                reasons[row["reason"]] += 1
        rows.flush()
    return dict(sorted(reasons.items()))


def _rows(piece: Piece, name: str) -> Iterator[dict[str, Any]]:
    with piece.open(name) as stream, pq.ParquetFile(stream) as table:
        for batch in table.iter_batches():
            yield from batch.to_pylist()


class _Rolling:
    """`warc/00000.warc.gz` and on; a file is closed once it holds `max_bytes`."""

    def __init__(self, out: Writer, max_bytes: int) -> None:
        self._out, self._max_bytes = out, max_bytes
        self._opened = ExitStack()
        self._stream: IO[bytes] | None = None
        self._name, self._files, self._size = "", 0, 0

    def __enter__(self) -> "_Rolling":
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def write(self, member: bytes) -> tuple[str, int]:
        """Append a record; give its file and offset."""
        if self._stream is None:
            self._name, self._size = f"warc/{self._files:05d}.warc.gz", 0
            self._files += 1
            self._stream = self._opened.enter_context(self._out.open(self._name))
        offset = self._size
        self._stream.write(member)
        self._size += len(member)
        if self._size >= self._max_bytes:
            self._opened.close()
            self._stream = None
        return self._name, offset
