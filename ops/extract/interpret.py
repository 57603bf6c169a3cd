"""What one record is: a document, or a reject that says why not."""

from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from ops.extract import digests, http_message, text
from ops.extract.config import ExtractConfig
from ops.extract.docx import document as docx
from ops.extract.docx.errors import DocxError
from ops.extract.html import html_extractor
from ops.extract.media import Container, container_of
from ops.extract.pdf.process import PdfReader, PdfRejectedError
from ops.extract.records import Damage, Record
from ops.extract.rejects import Reason, Reject

PLAIN_TEXT = "text/1"  # the extractor column of what is taken as it is
BOOKKEEPING_KINDS = frozenset({"warcinfo", "request", "metadata", "continuation"})
UNKNOWN_MEDIA_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/unknown", "unknown/unknown"})
DETAIL_CHARACTERS = 500
PARTIAL_CONTENT = 206


@dataclass(frozen=True, slots=True)
class Document:
    """Text and where it came from. The `warc_` columns are None for files; offset and length are in stored bytes.

    `page_starts`: for every page of a PDF, the character of the text at which it begins; None for what has no pages.
    """

    text: str
    source_id: str
    media_type: str
    extractor: str
    warc_file: str | None = None
    warc_offset: int | None = None
    warc_length: int | None = None
    page_starts: tuple[int, ...] | None = None


class _RejectedError(Exception):
    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class _Body:
    media_type: str
    charset: str | None
    data: bytes


@dataclass(slots=True)
class PageCounts:
    """Pages of the PDFs that became documents; those read by sight and those that could not be read among them."""

    read: int = 0
    by_sight: int = 0
    broken: int = 0


class Interpreter:
    """Interprets records under one configuration. Never raises for what a record holds.

    Owns the process that parses PDFs, which `close` ends.
    """

    def __init__(self, config: ExtractConfig) -> None:
        self._config = config
        self._extract_html = html_extractor(config.html)
        self._pdf = PdfReader(config.pdf)
        self.pages = PageCounts()
        # What is cut at this cap can't be a payload within bounds, whatever its headers take.
        self.max_block_bytes = config.max_payload_bytes + http_message.MAX_HEAD_BYTES

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._pdf.close()

    def of_record(self, record: Record | Damage, warc_file: str) -> Document | Reject:
        """Interpret one record of a web archive."""
        if isinstance(record, Damage):
            return _reject(record.uri, Reason(record.reason), record.detail, warc_file, record.offset)
        try:
            document = self._document(record.uri, self._body_of(record))
        except _RejectedError as rejected:
            return _reject(record.uri, rejected.reason, rejected.detail, warc_file, record.offset)
        return replace(document, warc_file=warc_file, warc_offset=record.offset, warc_length=record.length)

    def of_payload(self, uri: str, media_type: str, payload: bytes) -> Document | Reject:
        """Interpret a payload that came from no archive."""
        try:
            return self._document(uri, _Body(media_type, None, payload))
        except _RejectedError as rejected:
            return _reject(uri, rejected.reason, rejected.detail)

    def _body_of(self, record: Record) -> _Body:
        _check_kind(record)
        if record.is_cut:
            raise _RejectedError(Reason.TOO_LARGE, f"{record.block_bytes} bytes; max_payload_bytes is {self._config.max_payload_bytes}")
        if "warc-truncated" in record.fields or "warc-segment-number" in record.fields:
            raise _RejectedError(Reason.TRUNCATED, f"the crawler cut it off ({record.fields.get('warc-truncated', 'segmented')})")
        if record.kind != "response":
            return _resource_body(record)
        return self._response_body(record)

    def _response_body(self, record: Record) -> _Body:
        if not record.block.startswith(b"HTTP/") and not record.uri.lower().startswith(("http:", "https:")):
            raise _RejectedError(Reason.NOT_HTTP, f"a response of {record.uri.partition(':')[0] or 'an unnamed address'}")
        try:
            response = http_message.parse_response(record.block)
        except http_message.HttpError as error:
            raise _RejectedError(Reason.BAD_HTTP, str(error)) from error
        if not 200 <= response.status < 300 or response.status == PARTIAL_CONTENT:
            raise _RejectedError(Reason.HTTP_STATUS, str(response.status))
        _check_digest(record, response)
        try:
            data = http_message.decoded(response, self._config.max_payload_bytes)
        except http_message.CodingError as error:
            raise _RejectedError(Reason.BAD_ENCODING, str(error)) from error
        except http_message.BodyTooLargeError as error:
            raise _RejectedError(Reason.TOO_LARGE, str(error)) from error
        return _Body(response.media_type, response.charset, data)

    def _document(self, uri: str, body: _Body) -> Document:
        if not body.data.strip():
            raise _RejectedError(Reason.EMPTY_TEXT, f"{len(body.data)} bytes")
        container = container_of(body.media_type, body.data)
        if container is Container.PDF:
            return self._pdf_document(uri, body.data)
        if container is Container.DOCX:
            return self._docx_document(uri, body.data)
        media_type = self._media_type(body)
        if text.is_binary(body.data):
            raise _RejectedError(Reason.BINARY, f"labelled {media_type}")
        is_html = media_type in self._config.html_media_types
        decoded, undecodable = text.decode_text(body.data, body.charset, is_html=is_html)
        if undecodable > self._config.max_undecodable:
            raise _RejectedError(Reason.CHARSET, f"{undecodable:.1%} of the characters fit no charset (declared: {body.charset or 'none'})")
        extracted = self._html_text(decoded) if is_html else decoded
        if not extracted.strip():
            raise _RejectedError(Reason.EMPTY_TEXT, f"{len(body.data)} bytes of {media_type} hold no text")
        return Document(extracted, uri, media_type, self._extract_html.name if is_html else PLAIN_TEXT)

    def _pdf_document(self, uri: str, data: bytes) -> Document:
        try:
            found = self._pdf.read(data)
        except PdfRejectedError as error:
            raise _RejectedError(Reason(error.reason), error.detail) from error
        self.pages.read += len(found.page_starts)
        self.pages.by_sight += found.ocr_pages
        self.pages.broken += found.broken_pages
        return Document(found.text, uri, Container.PDF.value, found.extractor, page_starts=found.page_starts)

    def _docx_document(self, uri: str, data: bytes) -> Document:
        try:
            found = docx.docx_text(data, self._config.docx)
        except DocxError as error:
            raise _RejectedError(Reason(error.reason), error.detail) from error
        except Exception as error:  # a parser's bug on one file must not lose the others
            raise _RejectedError(Reason.EXTRACTOR_ERROR, f"{type(error).__name__}: {error}") from error
        return Document(found, uri, Container.DOCX.value, docx.NAME)

    def _media_type(self, body: _Body) -> str:
        media_type = body.media_type
        if media_type in UNKNOWN_MEDIA_TYPES and text.looks_like_html(body.data):
            return self._config.html_media_types[0]
        if media_type not in self._config.html_media_types and media_type not in self._config.text_media_types:
            raise _RejectedError(Reason.UNSUPPORTED_MEDIA_TYPE, media_type or "none named, and it does not look like HTML")
        return media_type

    def _html_text(self, html: str) -> str:
        try:
            return self._extract_html(html)
        except Exception as error:  # a parser's bug on one page must not lose the others
            raise _RejectedError(Reason.EXTRACTOR_ERROR, f"{type(error).__name__}: {error}") from error


def _check_kind(record: Record) -> None:
    if record.kind == "revisit":
        raise _RejectedError(Reason.REVISIT, record.fields.get("warc-refers-to-target-uri", ""))
    if record.kind in BOOKKEEPING_KINDS:
        raise _RejectedError(Reason.NOT_A_RESPONSE, record.kind)
    if record.kind not in ("response", "resource", "conversion"):
        raise _RejectedError(Reason.BAD_RECORD, f"WARC-Type is {record.kind!r}" if record.kind else "the header has no WARC-Type")


def _resource_body(record: Record) -> _Body:
    """A resource or conversion record: the block is the payload, unless a writer put HTTP headers before it."""
    if not record.uri.lower().startswith(("http:", "https:", "ftp:")):
        raise _RejectedError(Reason.NOT_HTTP, f"a {record.kind} of {record.uri.partition(':')[0] or 'an unnamed address'}")
    media_type = record.fields.get("content-type", "").partition(";")[0].strip().lower()
    return _Body(media_type, None, record.block)


def _check_digest(record: Record, response: http_message.HttpResponse) -> None:
    labelled = record.fields.get("warc-payload-digest")
    if labelled is None or digests.matches(labelled, response.body) is not False:
        return
    if not digests.matches(labelled, http_message.untransferred(response)):  # some writers hash it so
        raise _RejectedError(Reason.DIGEST_MISMATCH, f"the payload is not {labelled}")


def _reject(uri: str, reason: Reason, detail: str, warc_file: str | None = None, offset: int | None = None) -> Reject:
    return Reject(uri=uri, reason=reason, detail=detail[:DETAIL_CHARACTERS], warc_file=warc_file, warc_offset=offset)
