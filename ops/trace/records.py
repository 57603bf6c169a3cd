"""The stored bytes a document was read from: a record of a web archive, or a payload."""

import io
from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.artifacts.artifact import Artifact
from ops.extract.records import Record, read_records
from ops.trace.documents import TracedDocument, read_group

MAX_BLOCK_BYTES = 1 << 30
ORIGINS = "records.parquet"  # of an `index` source: where each of our records lay in the crawl's own archives


class LostRecordError(LookupError):
    """The raw artifact does not hold what the document says it came from."""


@dataclass(frozen=True)
class ArchivePlace:
    """Bytes of a file that the crawl publishes."""

    archive: str
    offset: int
    length: int


@dataclass(frozen=True)
class StoredRecord:
    """What a document was read from.

    Attributes:
        file: in the raw artifact.
        offset, length: of the stored bytes; of a payload, its row and its size.
        stored: those bytes.
        head: the record's own fields, or none for a payload.
        block: what the record holds, with its HTTP head; or the payload.
        place: where the crawl's publisher has it, if it was fetched by an index.
    """

    file: str
    offset: int
    length: int
    stored: bytes
    head: dict[str, str]
    block: bytes
    place: ArchivePlace | None


def record_of(raw: Artifact, document: TracedDocument) -> StoredRecord:
    """Read a document's record back.

    Raises:
        LostRecordError: what lies at that place is not the document's; the message says what is.
    """
    if document.warc_file is None:
        return _payload_of(raw, document)
    assert document.warc_offset is not None
    assert document.warc_length is not None
    with raw.open(document.warc_file) as stream:
        stream.seek(document.warc_offset)
        stored = stream.read(document.warc_length)
    found = [one for one in read_records(io.BytesIO(stored), MAX_BLOCK_BYTES) if isinstance(one, Record)]
    record = next((one for one in found if one.uri == document.url), None)
    if record is None:
        there = ", ".join(one.uri for one in found) or "no record"
        raise LostRecordError(f"{raw.url}: at {document.warc_offset} of {document.warc_file} lies {there}, not {document.url}")
    place = _place_of(raw, document.warc_file, document.warc_offset)
    return StoredRecord(document.warc_file, document.warc_offset, len(stored), stored, dict(record.fields), record.block, place)


def _payload_of(raw: Artifact, document: TracedDocument) -> StoredRecord:
    for name in raw.names:
        if not name.startswith("files-"):
            continue
        with raw.open(name) as stream, pq.ParquetFile(stream) as shard:
            first = 0
            for group in range(shard.num_row_groups):
                row = pc.index(read_group(shard, group, ["uri"])["uri"], document.url).as_py()
                if row >= 0:
                    payload = read_group(shard, group, ["payload"])["payload"][row].as_py()
                    return StoredRecord(name, first + row, len(payload), payload, {}, payload, None)
                first += shard.metadata.row_group(group).num_rows
    raise LostRecordError(f"{raw.url} holds no payload {document.url}")


def _place_of(raw: Artifact, file: str, offset: int) -> ArchivePlace | None:
    if ORIGINS not in raw.names:
        return None
    with raw.open(ORIGINS) as stream, pq.ParquetFile(stream) as table:
        for group in range(table.num_row_groups):
            ours = read_group(table, group, ["warc_file", "warc_offset"])
            is_it = pc.and_(pc.equal(ours["warc_file"], file), pc.equal(ours["warc_offset"], offset))
            row = pc.index(is_it, True).as_py()
            if row >= 0:
                place = read_group(table, group, ["archive", "archive_offset", "archive_length"]).slice(row, 1).to_pylist()[0]
                return ArchivePlace(place["archive"], place["archive_offset"], place["archive_length"])
    return None
