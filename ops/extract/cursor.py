"""Where we are in a web archive: bytes to read, and the offset at which they can be found again.

A cursor gives the uncompressed bytes of a file frame by frame. A frame is what can be decoded by itself: a gzip
member, or a whole uncompressed file. Both cursors hold memory for one chunk, whatever a frame inflates to.
"""

import io
import re
from typing import IO, Any, Protocol

from isal import isal_zlib

InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]
CHUNK_BYTES = 64 << 10
INFLATED_BYTES = 256 << 10  # at a time: web pages inflate to five times their size, and what is left of a chunk is copied each time
GZIP_MAGIC = b"\x1f\x8b"
GZIP_MEMBER = b"\x1f\x8b\x08"
# A line that begins a WARC record, or an ARC record (URL, address, date).
RECORD_LINE = re.compile(rb"\n(?=(?i:WARC)/\d|(?:https?|ftp|dns):\S{1,2000} [\d.]{7,15} \d{8})")
OVERLAP_BYTES = 4 << 10  # longer than any line that RECORD_LINE matches


class DamagedError(Exception):
    """The bytes at the cursor can't be read on. `reason` is a word of `rejects.Reason`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class Cursor(Protocol):
    """Bytes of an archive in order."""

    def start(self) -> int | None:
        """Offset at which the next unread byte can be found again; None at the end of the file."""

    def position(self) -> int:
        """Offset just behind the stored bytes that were needed so far."""

    def peek(self, size: int) -> bytes:
        """The next bytes of this frame, unread; fewer only at its end."""

    def readline(self, limit: int) -> bytes: ...

    def read(self, size: int) -> bytes:
        """`size` bytes; fewer only at the frame's end."""

    def skip(self, size: int) -> int:
        """Pass over bytes without keeping them. Returns how many there were."""

    def recover(self) -> None:
        """Move to the next place behind the last `start` where a record may begin, or to the end."""


class PlainCursor:
    """An uncompressed file: one frame, and an offset for every byte."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._size = stream.seek(0, io.SEEK_END)
        self._started = stream.seek(0)

    def start(self) -> int | None:
        self._started = self._stream.tell()
        return self._started if self._started < self._size else None

    def position(self) -> int:
        return self._stream.tell()

    def peek(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._stream.seek(-len(data), io.SEEK_CUR)
        return data

    def readline(self, limit: int) -> bytes:
        return self._stream.readline(limit)

    def read(self, size: int) -> bytes:
        return self._stream.read(size)

    def skip(self, size: int) -> int:
        here = self._stream.tell()
        skipped = min(size, self._size - here)
        self._stream.seek(here + skipped)
        return skipped

    def recover(self) -> None:
        """To the next line that begins like a record's header."""
        self._stream.seek(self._started)
        window, offset = b"", self._started  # `offset`: of the window's first byte
        while chunk := self._stream.read(CHUNK_BYTES):
            window += chunk
            if match := RECORD_LINE.search(window):
                self._stream.seek(offset + match.end())
                return
            kept = window[-OVERLAP_BYTES:]
            offset += len(window) - len(kept)
            window = kept


class GzipCursor:
    """A file of gzip members; a member's offset stands for all that is in it. Empty members are passed over."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._member: Any = None  # isal's Decompress; None between members
        self._stored = b""  # read from the file, not yet inflated
        self._fed = stream.seek(0)  # offset just behind the bytes given to the inflater
        self._started = 0  # offset of the current member
        self._ready = bytearray()  # inflated, not yet read
        self._used = 0  # how much of _ready was read
        self._is_damaged = False  # nothing behind _started can be trusted

    def start(self) -> int | None:
        while not self._has_ready():
            if self._member is None and not self._open_member():
                return None
        return self._started

    def position(self) -> int:
        return self._fed

    def peek(self, size: int) -> bytes:
        self._make_ready(size)
        return self._copy(size)

    def readline(self, limit: int) -> bytes:
        searched = self._used
        while (end := self._ready.find(b"\n", searched)) < 0 and len(self._ready) - self._used < limit:
            searched = len(self._ready)
            if not self._inflate():
                break
        stop = len(self._ready) if end < 0 else end + 1
        return self._take(min(stop - self._used, limit))

    def read(self, size: int) -> bytes:
        self._make_ready(size)
        return self._take(size)

    def skip(self, size: int) -> int:
        skipped = 0
        while skipped < size and self._has_ready():
            skipped += len(self._take(min(size - skipped, len(self._ready) - self._used)))
        return skipped

    def recover(self) -> None:
        """To the end of this member; if it is damaged, to the next bytes that inflate to something."""
        try:
            while not self._is_damaged and self._inflate():
                self._ready.clear()
        except DamagedError:
            pass
        self._ready.clear()
        self._used = 0
        if self._is_damaged:
            self._find_member(self._started + 1)

    def _find_member(self, offset: int) -> None:
        self._stream.seek(offset)
        window = b""
        while chunk := self._stream.read(CHUNK_BYTES):
            window += chunk
            found = -1
            while (found := window.find(GZIP_MEMBER, found + 1)) >= 0:
                if _inflates(window[found:]):
                    self._reset(offset + found)
                    return
            kept = window[-len(GZIP_MEMBER) + 1 :]
            offset += len(window) - len(kept)
            window = kept
        self._reset(self._stream.seek(0, io.SEEK_END))

    def _reset(self, offset: int) -> None:
        self._stream.seek(offset)
        self._member, self._stored, self._fed, self._started = None, b"", offset, offset
        self._ready, self._used, self._is_damaged = bytearray(), 0, False

    def _has_ready(self) -> bool:
        while self._used == len(self._ready):
            self._ready.clear()
            self._used = 0
            if not self._inflate():
                return False
        return True

    def _make_ready(self, size: int) -> None:
        """Inflate until so many bytes are there, or the member ends."""
        while len(self._ready) - self._used < size and self._inflate():
            pass

    def _copy(self, size: int) -> bytes:
        with memoryview(self._ready) as ready:  # slicing the bytearray itself would copy twice
            return bytes(ready[self._used : self._used + size])

    def _take(self, size: int) -> bytes:
        data = self._copy(size)
        self._used += len(data)
        if self._used > CHUNK_BYTES:
            del self._ready[: self._used]
            self._used = 0
        return data

    def _open_member(self) -> bool:
        """Begin the next member; False at the end of the file."""
        if len(self._stored) < 2:
            self._stored += self._stream.read(CHUNK_BYTES)
        if not self._stored:
            return False
        self._started = self._fed
        if not self._stored.startswith(GZIP_MAGIC):
            self._is_damaged = True
            raise DamagedError("bad-record", f"no gzip member begins at offset {self._started}")
        self._member = isal_zlib.decompressobj(31)
        return True

    def _inflate(self) -> bool:
        """Inflate one chunk onto _ready; False at the end of the member."""
        if self._member is None:
            return False
        if not self._stored:
            self._stored = self._stream.read(CHUNK_BYTES)
        if not self._stored:
            self._is_damaged = True
            raise DamagedError("truncated", f"the file ends inside the gzip member that begins at offset {self._started}")
        given = self._stored
        try:
            self._ready += self._member.decompress(given, INFLATED_BYTES)
        except InflateError as error:
            self._is_damaged = True
            raise DamagedError("bad-record", f"the gzip member at offset {self._started} does not inflate: {error}") from error
        self._stored = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        self._fed += len(given) - len(self._stored)
        if self._member.eof:
            self._member = None
        return True


def _inflates(data: bytes) -> bool:
    try:
        return bool(isal_zlib.decompressobj(31).decompress(data[:512], 1))
    except InflateError:
        return False
