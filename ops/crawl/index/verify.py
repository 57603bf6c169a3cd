"""One record, checked against what its index says: place, length, kind, URL, id, digest, the site's own answer."""

import gzip
import io
import zlib
from dataclasses import dataclass
from typing import Literal

from ops.crawl.index.reasons import FetchReason, RecordError
from ops.extract import digests, http_message
from ops.extract.cursor import GZIP_MAGIC
from ops.extract.frame_cursor import READERS
from ops.extract.records import Damage, Record, read_records

GZIP_LEVEL = 6
PARTIAL_CONTENT = 206
MAX_HEADER_BYTES = 1 << 20  # of a record, beside its block


@dataclass(frozen=True, slots=True)
class Expected:
    """What the index says of a record. `digest`: SHA-1 in base 32, with or without its label; None if it says nothing."""

    url: str
    digest: str | None
    record_id: str | None


@dataclass(frozen=True, slots=True)
class Verified:
    """A record that is what the index says, as one gzip member."""

    member: bytes
    payload_bytes: int
    verified_by: Literal["index", "record", "nothing"]  # whose digest the payload was compared with


def verify(stored: bytes, expected: Expected, max_payload_bytes: int, dictionary: bytes = b"") -> Verified:
    """Check the stored bytes of one record.

    Args:
        stored: exactly the bytes that the index names.
        dictionary: what stands at the head of a `.warc.zst` archive, without which none of its frames decodes.

    Returns:
        The record. Its bytes are the stored ones if those are a gzip member with this record alone; a record from another
        coding, or from a member that it shares, is compressed anew.

    Raises:
        RecordError: says in which way it is not the record.
    """
    cap = max_payload_bytes + http_message.MAX_HEAD_BYTES
    inflated = _inflated(stored, cap + MAX_HEADER_BYTES, dictionary)
    record, start, is_alone = _the_record(inflated, expected, cap)
    _check_kind(record)
    if expected.record_id is not None and _bare(record.fields.get("warc-record-id", "")) != _bare(expected.record_id):
        raise RecordError(FetchReason.RECORD_ID_MISMATCH, f"{record.fields.get('warc-record-id', 'none')}, not {expected.record_id}")
    payload_bytes, verified_by = _check_payload(record, expected)
    if payload_bytes > max_payload_bytes:
        raise RecordError(FetchReason.TOO_LARGE, f"a payload of {payload_bytes} bytes; max_payload_bytes is {max_payload_bytes}")
    if is_alone and stored.startswith(GZIP_MAGIC):
        return Verified(stored, payload_bytes, verified_by)
    return Verified(gzip.compress(inflated[start : start + record.length], GZIP_LEVEL, mtime=0), payload_bytes, verified_by)


def _inflated(stored: bytes, limit: int, dictionary: bytes) -> bytes:
    if stored.startswith(GZIP_MAGIC):
        return _gunzipped(stored, limit)
    if stored[:4] in READERS:
        return _decoded_frame(stored, limit, dictionary)
    return stored


def _gunzipped(stored: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj(31)
    try:
        data = inflater.decompress(stored, limit + 1)
    except zlib.error as error:
        raise RecordError(FetchReason.DAMAGED_RECORD, f"the gzip member does not inflate: {error}") from error
    if len(data) > limit:
        raise RecordError(FetchReason.TOO_LARGE, f"inflates to more than {limit} bytes")
    if not inflater.eof:
        raise RecordError(FetchReason.WRONG_LENGTH, f"the gzip member goes on behind its {len(stored)} bytes")
    if inflater.unused_data:
        raise RecordError(FetchReason.WRONG_LENGTH, f"the gzip member ends {len(inflater.unused_data)} bytes before its end")
    return data


def _decoded_frame(stored: bytes, limit: int, dictionary: bytes) -> bytes:
    data = bytearray()
    head = dictionary if stored[:4] != dictionary[:4] else b""
    reader = READERS[(head or stored)[:4]](io.BytesIO(head + stored))
    try:
        while len(data) <= limit and (chunk := reader.read(min(1 << 20, limit + 1 - len(data)))):
            data += chunk
    except OSError as error:
        cut = "incomplete" in str(error)
        raise RecordError(FetchReason.WRONG_LENGTH if cut else FetchReason.DAMAGED_RECORD, f"the frame does not decode: {error}") from error
    if len(data) > limit:
        raise RecordError(FetchReason.TOO_LARGE, f"decodes to more than {limit} bytes")
    return bytes(data)


def _the_record(inflated: bytes, expected: Expected, cap: int) -> tuple[Record, int, bool]:
    """The record that answers to the URL, where it begins in the inflated bytes, and whether nothing else is there."""
    found = list(read_records(io.BytesIO(inflated), cap))
    if not found or inflated[:1].isspace():
        raise RecordError(FetchReason.MISSING_RECORD, "no record begins here")
    if isinstance(found[0], Damage):
        reason = FetchReason.WRONG_LENGTH if found[0].reason == "truncated" else FetchReason.DAMAGED_RECORD
        if found[0].reason == "bad-record" and not _begins_like_one(inflated):
            reason = FetchReason.MISSING_RECORD
        raise RecordError(reason, found[0].detail)
    records = [one for one in found if isinstance(one, Record)]
    answering = [one for one in records if one.uri == expected.url]
    responses = [one for one in answering if one.kind == "response"] or answering
    if not responses:
        raise RecordError(FetchReason.URI_MISMATCH, f"the record is of {records[0].uri or 'no URL'}")
    if len(responses) > 1:
        raise RecordError(FetchReason.DUPLICATE_RECORD, f"{len(responses)} records of this URL lie here")
    return responses[0], responses[0].offset, len(found) == 1


def _begins_like_one(inflated: bytes) -> bool:
    return inflated[:5].upper() == b"WARC/" or inflated[:4].lower() == b"http"


def _check_kind(record: Record) -> None:
    if record.kind == "revisit":
        raise RecordError(FetchReason.REVISIT, record.fields.get("warc-refers-to-target-uri", ""))
    if record.kind != "response":
        raise RecordError(FetchReason.NOT_A_RESPONSE, f"a {record.kind or 'nameless'} record")
    if record.is_cut:
        raise RecordError(FetchReason.TOO_LARGE, f"a block of {record.block_bytes} bytes")
    if "warc-truncated" in record.fields or "warc-segment-number" in record.fields:
        raise RecordError(FetchReason.TRUNCATED, record.fields.get("warc-truncated", "segmented"))


def _check_payload(record: Record, expected: Expected) -> tuple[int, Literal["index", "record", "nothing"]]:
    try:
        response = http_message.parse_response(record.block)
    except http_message.HttpError as error:
        raise RecordError(FetchReason.BAD_HTTP, str(error)) from error
    if not 200 <= response.status < 300 or response.status == PARTIAL_CONTENT:
        raise RecordError(FetchReason.ORIGIN_STATUS, str(response.status))
    untransferred = http_message.untransferred(response)  # archives differ in whether the digest is over the chunks
    bodies = (response.body,) if untransferred is response.body else (response.body, untransferred)
    own, named = record.fields.get("warc-payload-digest"), _labelled(expected.digest)
    verified_by: Literal["index", "record", "nothing"] = "nothing"
    if own is not None and own != named:
        verified_by = "record" if _agrees(own, "record", bodies) else "nothing"
    if named is not None and _agrees(named, "index", bodies):
        verified_by = "index"
    return len(response.body), verified_by


def _agrees(digest: str, whose: str, bodies: tuple[bytes, ...]) -> bool:
    """Whether a digest is that of a body; False if it can't be read."""
    matches = digests.matches(digest, *bodies)
    if matches is False:
        raise RecordError(FetchReason.DIGEST_MISMATCH, f"the payload is not the {digest} of the {whose}")
    return bool(matches)


def _labelled(digest: str | None) -> str | None:
    """Indexes of Common Crawl leave the algorithm out."""
    return digest if digest is None or ":" in digest else f"sha1:{digest}"


def _bare(record_id: str) -> str:
    return record_id.strip().strip("<>").lower()
