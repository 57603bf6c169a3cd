"""Records that do not become documents: why, and where they are."""

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa


class Reason(StrEnum):
    """Why a record is no document. A closed set: a new way to fail gets a new word."""

    NOT_A_RESPONSE = "not-a-response"  # request, metadata, warcinfo: part of a crawl's books
    REVISIT = "revisit"  # says that a page did not change; the page is elsewhere
    NOT_HTTP = "not-http"  # a DNS answer, an FTP listing, a crawler's log
    HTTP_STATUS = "http-status"  # anything but 2xx
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type"
    BINARY = "binary"  # labelled text, and isn't
    BAD_RECORD = "bad-record"  # no record can be read at this offset
    BAD_HTTP = "bad-http"
    BAD_ENCODING = "bad-encoding"  # the content coding named in the header does not decode
    TRUNCATED = "truncated"
    DIGEST_MISMATCH = "digest-mismatch"
    TOO_LARGE = "too-large"
    CHARSET = "charset"  # no charset explains the bytes
    EXTRACTOR_ERROR = "extractor-error"
    ENCRYPTED = "encrypted"  # a password is needed
    BROKEN_FILE = "broken-file"  # a PDF or DOCX whose parser says why it can't be read
    BOMB = "bomb"  # a DOCX that is larger inside, or deeper, than it may be
    TIMEOUT = "timeout"  # a PDF that used up its CPU-seconds
    PARSER_CRASH = "parser-crash"  # a PDF that ended its parser's process
    EMPTY_TEXT = "empty-text"
    UNREADABLE = "unreadable"
    BAD_ROW = "bad-row"  # a line that is no JSON object with the text field


@dataclass(frozen=True)
class Reject:
    """One record left out. `warc_offset` is in bytes of the stored (compressed) file; both are None outside WARCs."""

    uri: str
    reason: Reason
    detail: str
    warc_file: str | None = None
    warc_offset: int | None = None


REJECT_SCHEMA = pa.schema(
    [("uri", pa.string()), ("warc_file", pa.string()), ("warc_offset", pa.int64()), ("reason", pa.string()), ("detail", pa.string())]
)


def reject_row(reject: Reject) -> tuple[str, str | None, int | None, str, str]:
    """A row of `REJECT_SCHEMA`."""
    return reject.uri, reject.warc_file, reject.warc_offset, str(reject.reason), reject.detail
