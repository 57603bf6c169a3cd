"""Records of WARC 1.x and ARC 1/2 files, with their offsets; damage comes as data.

Own framing rather than fastwarc's: on the public test files that reads no ARC, drops a clipped last record and what
follows an empty gzip member without a word, and gives up on a file at the first odd header. On isal's inflate
this runs at 500 MB/s of inflated pages, fastwarc at 770; extraction behind it runs at 50.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from ops.extract.cursor import GZIP_MAGIC, Cursor, DamagedError, GzipCursor, PlainCursor
from ops.extract.frame_cursor import READERS, FrameCursor

MAX_LINE_BYTES = 64 << 10
MAX_FIELDS = 1_000
ARC_LINE = re.compile(rb"^(?P<uri>\S.*?) (?P<ip>[\d.]{7,15}|[\da-fA-F:]{2,39}) (?P<date>\S+) .*?(?P<length>-?\d+)\s*$")


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `block` holds at most the cap's bytes of its `block_bytes`; field names are lower case.

    `offset` and `length` address the stored bytes that are enough to read it again. Where several records share a gzip
    member, all carry the member's offset.
    """

    offset: int
    length: int
    kind: str
    uri: str
    fields: Mapping[str, str]
    block: bytes
    block_bytes: int

    @property
    def is_cut(self) -> bool:
        return len(self.block) < self.block_bytes


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that give no record."""

    offset: int
    length: int
    uri: str
    reason: str
    detail: str


def read_records(stream: IO[bytes], max_block_bytes: int) -> Iterator[Record | Damage]:
    """Every record of an archive in file order, and every damaged stretch between them.

    After damage, reading goes on at the next place where a record begins. Memory: one block, at most `max_block_bytes`.
    """
    cursor = open_cursor(stream)
    while True:
        place = _Place(cursor.position())
        try:
            record = _read_record(cursor, place, max_block_bytes)
        except DamagedError as damage:
            cursor.recover()
            yield Damage(place.offset, _end_of(cursor) - place.offset, place.uri, damage.reason, damage.detail)
            continue
        if record is None:
            return
        yield record


def open_cursor(stream: IO[bytes]) -> Cursor:
    """The cursor for a seekable stream, by its first bytes."""
    stream.seek(0)
    magic = stream.read(4)
    if magic in READERS:
        return FrameCursor(stream, magic)
    return GzipCursor(stream) if magic.startswith(GZIP_MAGIC) else PlainCursor(stream)


@dataclass
class _Place:
    """What is known about the record being read, for the report when it breaks off."""

    offset: int
    uri: str = ""


def _end_of(cursor: Cursor) -> int:
    try:
        start = cursor.start()
    except DamagedError:
        start = None
    return cursor.position() if start is None else start


def _read_record(cursor: Cursor, place: _Place, max_block_bytes: int) -> Record | None:
    if not _skip_blank_lines(cursor):
        return None
    start = cursor.start()
    assert start is not None
    place.offset = start
    line = cursor.readline(MAX_LINE_BYTES)
    if line[:5].upper() == b"WARC/":
        kind, uri, fields, size = _read_warc_header(cursor, place)
    else:
        kind, uri, fields, size = _read_arc_header(line)
    place.uri = uri
    block = cursor.read(min(size, max_block_bytes))
    found = len(block) + (cursor.skip(size - len(block)) if size > len(block) else 0)
    if found < size:
        raise DamagedError("truncated", f"{found} of {size} bytes are there")
    _check_boundary(cursor)
    return Record(start, cursor.position() - start, kind, uri, fields, block, size)


def _skip_blank_lines(cursor: Cursor) -> bool:
    """To the next byte that is no line end, across frames; False at the end of the file."""
    while cursor.start() is not None:
        if cursor.peek(1) not in (b"\r", b"\n"):
            return True
        cursor.skip(1)
    return False


def _check_boundary(cursor: Cursor) -> None:
    """After a block come line ends, or the next record, or nothing. Passes over the line ends of this frame."""
    is_separated = False
    while cursor.peek(1) in (b"\r", b"\n"):
        cursor.skip(1)
        is_separated = True
    if not is_separated and (rest := cursor.peek(5)) and not b"WARC/".startswith(rest.upper()):
        raise DamagedError("bad-record", "the record goes on behind its Content-Length")


def _read_warc_header(cursor: Cursor, place: _Place) -> tuple[str, str, dict[str, str], int]:
    fields = _read_fields(cursor)
    uri = fields.get("warc-target-uri", "").strip("<> ")
    place.uri = uri
    length = fields.get("content-length", "")
    if not re.fullmatch(r"[0-9]{1,18}", length):
        raise DamagedError("bad-record", f"Content-Length is {length!r}" if length else "the header has no Content-Length")
    return fields.get("warc-type", "").lower(), uri, fields, int(length)


def _read_fields(cursor: Cursor) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for _ in range(MAX_FIELDS):
        line = cursor.readline(MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise DamagedError("truncated", "the file ends inside a record's header")
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text:
            return fields
        if text[0] in " \t" and name:
            fields[name] = f"{fields[name]} {text.strip()}".strip()
        elif ":" in text:
            name, _, value = text.partition(":")
            name = name.strip().lower()
            fields.setdefault(name, value.strip())
    raise DamagedError("bad-record", f"the header has more than {MAX_FIELDS} lines")


def _read_arc_header(line: bytes) -> tuple[str, str, dict[str, str], int]:
    match = ARC_LINE.match(line)
    if match is None or not re.match(rb"[a-z][a-z0-9+.-]*:", match["uri"], re.IGNORECASE):
        raise DamagedError("bad-record", f"neither a WARC nor an ARC record begins with {line[:60].decode('utf-8', 'replace')!r}")
    if int(match["length"]) < 0:
        raise DamagedError("bad-record", f"the ARC record's length is {int(match['length'])}")
    uri = match["uri"].decode("utf-8", "replace")
    return "warcinfo" if uri.startswith("filedesc:") else "response", uri, {}, int(match["length"])
