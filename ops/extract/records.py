"""Records of WARC 1.x and ARC 1/2 files, with their offsets; damage comes as data.

Own framing rather than fastwarc's: on the public test files that reads no ARC, drops a clipped last record and what
follows an empty gzip member without a word, and gives up on a file at the first odd header. Most of the
time here is libdeflate's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, NamedTuple

from ops.extract.cursor import GZIP_MAGIC, Cursor, DamagedError, GzipCursor, PlainCursor
from ops.extract.frame_cursor import READERS, FrameCursor

MAX_LINE_BYTES = 64 << 10
MAX_FIELDS = 1_000
HEADER_BYTES = 4 << 10  # most headers are shorter; a longer one is read line by line
SEPARATOR_BYTES = 8  # two line ends, and room to see that no more come
LINE_ENDS = b"\r\n"
BLANK_LINE = re.compile(rb"\n\r*\n")
WARC_MAGIC = b"WARC/"
LENGTH = re.compile(r"[0-9]{1,18}")
ARC_LINE = re.compile(rb"^(?P<uri>\S.*?) (?P<ip>[\d.]{7,15}|[\da-fA-F:]{2,39}) (?P<date>\S+) .*?(?P<length>-?\d+)\s*$")


class Record(NamedTuple):
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
    place = _Place()
    while True:
        place.offset, place.uri = cursor.position(), ""
        try:
            record = _read_record(cursor, place, max_block_bytes)
        except DamagedError as damage:
            cursor.recover()
            yield Damage(place.offset, _end_of(cursor) - place.offset, place.uri, damage.reason, damage.detail)
            continue
        if record is None:
            return
        yield record
        del record  # its memory serves the next one


def open_cursor(stream: IO[bytes]) -> Cursor:
    """The cursor for a seekable stream, by its first bytes."""
    stream.seek(0)
    magic = stream.read(4)
    if magic in READERS:
        return FrameCursor(stream, magic)
    return GzipCursor(stream) if magic.startswith(GZIP_MAGIC) else PlainCursor(stream)


@dataclass(slots=True)
class _Place:
    """What is known about the record being read, for the report when it breaks off."""

    offset: int = 0
    uri: str = ""


def _end_of(cursor: Cursor) -> int:
    try:
        start = cursor.start()
    except DamagedError:
        start = None
    return cursor.position() if start is None else start


def _read_record(cursor: Cursor, place: _Place, max_block_bytes: int) -> Record | None:
    start = _next_start(cursor)
    if start is None:
        return None
    place.offset = start
    if (lines := _header_at_hand(cursor)) is not None:
        kind, uri, fields, size = _warc_header(lines[1:], place)
    elif (line := cursor.readline(MAX_LINE_BYTES))[: len(WARC_MAGIC)].upper() == WARC_MAGIC:
        kind, uri, fields, size = _warc_header(_header_lines(cursor), place)
    else:
        kind, uri, fields, size = _arc_header(line)
    place.uri = uri
    block = cursor.read(min(size, max_block_bytes))
    found = len(block) + (cursor.skip(size - len(block)) if size > len(block) else 0)
    if found < size:
        raise DamagedError("truncated", f"{found} of {size} bytes are there")
    _check_boundary(cursor)
    return Record(start, cursor.position() - start, kind, uri, fields, block, size)


def _next_start(cursor: Cursor) -> int | None:
    """Where the next byte lies that is no line end, across frames; None at the end of the file."""
    while (start := cursor.start()) is not None:
        if not _skip_line_ends(cursor):
            return start
    return None


def _skip_line_ends(cursor: Cursor) -> bool:
    """Pass over the line ends that come next in this frame. Returns whether there was any."""
    is_any = False
    while (ahead := cursor.peek(SEPARATOR_BYTES)) and (count := len(ahead) - len(ahead.lstrip(LINE_ENDS))):
        cursor.skip(count)
        is_any = True
    return is_any


def _check_boundary(cursor: Cursor) -> None:
    """After a block come line ends, or the next record, or nothing. Passes over the line ends of this frame."""
    if not _skip_line_ends(cursor) and (rest := cursor.peek(len(WARC_MAGIC))) and not WARC_MAGIC.startswith(rest.upper()):
        raise DamagedError("bad-record", "the record goes on behind its Content-Length")


def _header_at_hand(cursor: Cursor) -> list[str] | None:
    """A WARC header's lines, the first included, where the cursor sees to its end; else None, and nothing is read."""
    ahead = cursor.peek(HEADER_BYTES)
    if ahead[: len(WARC_MAGIC)].upper() != WARC_MAGIC or (blank := BLANK_LINE.search(ahead)) is None:
        return None
    lines = ahead[: blank.start()].decode("utf-8", "replace").split("\n")
    if len(lines) > MAX_FIELDS:
        return None
    cursor.skip(blank.end())
    return lines


def _header_lines(cursor: Cursor) -> list[str]:
    """The lines up to a blank one, read one by one."""
    lines: list[str] = []
    while len(lines) < MAX_FIELDS:
        line = cursor.readline(MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise DamagedError("truncated", "the file ends inside a record's header")
        if not line.strip(LINE_ENDS):
            return lines
        lines.append(line.decode("utf-8", "replace"))
    raise DamagedError("bad-record", f"the header has more than {MAX_FIELDS} lines")


def _warc_header(lines: Iterable[str], place: _Place) -> tuple[str, str, dict[str, str], int]:
    fields = _fields_of(lines)
    uri = fields.get("warc-target-uri", "").strip("<> ")
    place.uri = uri
    length = fields.get("content-length", "")
    if not LENGTH.fullmatch(length):
        raise DamagedError("bad-record", f"Content-Length is {length!r}" if length else "the header has no Content-Length")
    return fields.get("warc-type", "").lower(), uri, fields, int(length)


def _fields_of(lines: Iterable[str]) -> dict[str, str]:
    """The fields of a header. Of repeated ones the first counts; a line that begins with a blank continues the one before."""
    fields: dict[str, str] = {}
    name = ""
    for text in lines:
        if text[0] in " \t" and name:
            fields[name] = f"{fields[name]} {text.strip()}".strip()
            continue
        before, colon, value = text.partition(":")
        if colon:
            name = before.strip().lower()
            fields.setdefault(name, value.strip())
    return fields


def _arc_header(line: bytes) -> tuple[str, str, dict[str, str], int]:
    match = ARC_LINE.match(line)
    if match is None or not re.match(rb"[a-z][a-z0-9+.-]*:", match["uri"], re.IGNORECASE):
        raise DamagedError("bad-record", f"neither a WARC nor an ARC record begins with {line[:60].decode('utf-8', 'replace')!r}")
    if int(match["length"]) < 0:
        raise DamagedError("bad-record", f"the ARC record's length is {int(match['length'])}")
    uri = match["uri"].decode("utf-8", "replace")
    return "warcinfo" if uri.startswith("filedesc:") else "response", uri, {}, int(match["length"])
