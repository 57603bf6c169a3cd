"""Why a record that an index names is not among what was fetched. Per record, and for good: trying again gives the same."""

from enum import StrEnum

import pyarrow as pa


class FetchReason(StrEnum):
    """A closed set: a new way to fail gets a new word."""

    OVERLAP = "overlap"  # two rows of the index claim the same bytes
    TOO_LARGE = "too-large"
    REJECTED = "rejected"  # the store has no such archive, or gives it to nobody like us
    OUT_OF_RANGE = "out-of-range"  # the archive ends before the record does
    MISSING_RECORD = "missing-record"  # no record begins at the offset
    WRONG_LENGTH = "wrong-length"  # one does, and ends elsewhere than the index says
    DAMAGED_RECORD = "damaged-record"
    DUPLICATE_RECORD = "duplicate-record"  # several records at the offset answer to the URL
    REVISIT = "revisit"
    NOT_A_RESPONSE = "not-a-response"
    TRUNCATED = "truncated"  # by the crawler
    URI_MISMATCH = "uri-mismatch"
    RECORD_ID_MISMATCH = "record-id-mismatch"
    BAD_HTTP = "bad-http"
    ORIGIN_STATUS = "origin-status"  # the site's answer was no success
    DIGEST_MISMATCH = "digest-mismatch"


class RecordError(Exception):
    """One record can't be had, or is not what the index says."""

    def __init__(self, reason: FetchReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


ERROR_SCHEMA = pa.schema(
    [("uri", pa.string()), ("reason", pa.string()), ("detail", pa.string()), ("archive", pa.string()), ("archive_offset", pa.int64())]
)
