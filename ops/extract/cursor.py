"""Where we are in a web archive: bytes to read, and the offset at which they can be found again.

A cursor gives the uncompressed bytes of a file frame by frame. A frame is what can be decoded by itself: a gzip
member, or a whole uncompressed file. Both cursors hold memory for one chunk, whatever a frame inflates to.
"""

import io
import re
from typing import IO, Any, Protocol

import deflate
import numpy as np
from isal import isal_zlib

InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]
CHUNK_BYTES = 64 << 10
STORED_BYTES = 1 << 20  # read at a time
FED_BYTES = 64 << 10  # most members are shorter; what is fed too much is copied out again
INFLATED_BYTES = 256 << 10  # at a time
WHOLE_STORED_BYTES = 128 << 10  # nine tenths of the bytes of real pages lie in members no longer than these two
WHOLE_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
GZIP_MEMBER = b"\x1f\x8b\x08"
LEAST_MEMBER_BYTES = 18  # header and trailer
SIZE_BYTES = 4  # that end a member: how many bytes it inflates to, little-endian
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
        """The next bytes of this frame, unread; fewer at its end, and before damage, which the next read will meet."""

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
        self._stored = memoryview(b"")  # read from the file
        self._likely: list[int] = []  # where members seem to begin in _stored, the first one last
        self._taken = 0  # how much of _stored was inflated
        self._fed = stream.seek(0)  # offset just behind the bytes that were inflated
        self._started = 0  # offset of the current member
        self._ready: bytes | bytearray = b""  # inflated; usually one piece as its decoder gave it, so that a record is copied once
        self._used = 0  # how much of _ready was read
        self._damage: DamagedError | None = None  # behind _ready; nothing behind _started can be trusted

    def start(self) -> int | None:
        while self._used == len(self._ready):
            if not self._inflate() and not self._open_member():
                return None
        return self._started

    def position(self) -> int:
        return self._fed

    def peek(self, size: int) -> bytes:
        while len(self._ready) - self._used < size:
            try:
                if not self._inflate():
                    break
            except DamagedError:
                if self._used == len(self._ready):
                    raise
                break
        return bytes(memoryview(self._ready)[self._used : self._used + size])

    def readline(self, limit: int) -> bytes:
        searched = self._used
        while (end := self._ready.find(b"\n", searched)) < 0 and len(self._ready) - self._used < limit:
            searched = len(self._ready) - self._used  # inflating drops what was read
            if not self._inflate():
                break
        stop = len(self._ready) if end < 0 else end + 1
        return self._take(min(stop - self._used, limit))

    def read(self, size: int) -> bytes:
        end = self._used + size
        if end <= len(self._ready):
            data = bytes(memoryview(self._ready)[self._used : end])
            self._used = end
            return data
        pieces: list[bytes] = []
        while size > 0 and self._has_ready():
            pieces.append(self._take(size))
            size -= len(pieces[-1])
        return b"".join(pieces)

    def skip(self, size: int) -> int:
        end = self._used + size
        if end == len(self._ready):
            self._ready, self._used = b"", 0  # given back before the next piece is made, which then lies in the same cache lines
            return size
        if end < len(self._ready):
            self._used = end
            return size
        skipped = 0
        while skipped < size and self._has_ready():
            step = min(size - skipped, len(self._ready) - self._used)
            self._used += step
            skipped += step
        return skipped

    def recover(self) -> None:
        """To the end of this member; if it is damaged, to the next bytes that inflate to something."""
        try:
            while self._inflate():
                self._ready, self._used = b"", 0
        except DamagedError:
            pass
        self._ready, self._used = b"", 0
        if self._damage is not None:
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
        self._member, self._stored, self._taken, self._fed, self._started = None, memoryview(b""), 0, offset, offset
        self._ready, self._used, self._damage, self._likely = b"", 0, None, []

    def _has_ready(self) -> bool:
        while self._used == len(self._ready):
            if not self._inflate():
                return False
        return True

    def _take(self, size: int) -> bytes:
        """At most `size` bytes of what is ready."""
        begin = self._used
        data = bytes(memoryview(self._ready)[begin : begin + size])
        self._used = begin + len(data)
        return data

    def _open_member(self) -> bool:
        """Begin the next member; False at the end of the file."""
        stored = self._next_stored()
        if not stored:
            return False
        self._started = self._fed
        if stored[: len(GZIP_MAGIC)] != GZIP_MAGIC:
            raise self._damaged("bad-record", f"no gzip member begins at offset {self._started}")
        if not self._inflate_whole():
            self._member = isal_zlib.decompressobj(31)
        return True

    def _inflate_whole(self) -> bool:
        """Put the whole member that begins here into _ready, if its end can be guessed and all of it is at hand.

        The guess: it ends where the next one seems to begin, or at the end of the file, and its last bytes tell its size. Size
        and checksum prove it, and then libdeflate takes three quarters of isal's time. A wrong guess takes nothing.
        """
        begin, stored_bytes = self._taken, len(self._stored)
        while self._likely and self._likely[-1] < begin + LEAST_MEMBER_BYTES:
            self._likely.pop()
        end = self._likely[-1] if self._likely else stored_bytes
        if end - begin > WHOLE_STORED_BYTES or (end == stored_bytes and stored_bytes - begin >= WHOLE_STORED_BYTES):
            return False
        size = int.from_bytes(self._stored[end - SIZE_BYTES : end], "little")
        if size > WHOLE_BYTES:
            return False
        try:
            piece = deflate.gzip_decompress(self._stored[begin:end], size)
        except deflate.DeflateError:
            return False
        if len(piece) != size:
            return False
        self._ready, self._used = piece, 0
        self._taken, self._fed = end, self._fed + end - begin
        return True

    def _next_stored(self) -> memoryview:
        """Bytes to inflate next; fewer than FED_BYTES only at the end of the file."""
        if len(self._stored) - self._taken < WHOLE_STORED_BYTES and (more := self._stream.read(STORED_BYTES)):
            self._stored, self._taken = memoryview(bytes(self._stored[self._taken :]) + more), 0
            self._likely = _likely_members(self._stored)
        return self._stored[self._taken : self._taken + FED_BYTES]

    def _inflate(self) -> bool:
        """Put one piece behind the unread of _ready; False at the end of the member."""
        if self._damage is not None:
            raise self._damage
        if self._member is None:
            return False
        given = self._next_stored()
        if not given:
            raise self._damaged("truncated", f"the file ends inside the gzip member that begins at offset {self._started}")
        try:
            piece = self._member.decompress(given, INFLATED_BYTES)
        except InflateError as error:
            raise self._damaged("bad-record", f"the gzip member at offset {self._started} does not inflate: {error}") from error
        self._ready = self._ready[self._used :] + piece if self._used < len(self._ready) else piece
        self._used = 0
        inflated = len(given) - len(self._member.unused_data if self._member.eof else self._member.unconsumed_tail)
        self._taken += inflated
        self._fed += inflated
        if self._member.eof:
            self._member = None
        return True

    def _damaged(self, reason: str, detail: str) -> DamagedError:
        self._damage = DamagedError(reason, detail)
        return self._damage


def _likely_members(stored: memoryview) -> list[int]:
    """Where GZIP_MEMBER stands in `stored`, from the last to the first. One byte of 256 is like its first; `bytes.find` takes
    three times as long.
    """
    data = np.frombuffer(stored, np.uint8)
    at = np.flatnonzero(data[: -len(GZIP_MEMBER) + 1] == GZIP_MEMBER[0])
    for place, byte in enumerate(GZIP_MEMBER[1:], 1):
        at = at[data[at + place] == byte]
    found: list[int] = at[::-1].tolist()
    return found


def _inflates(data: bytes) -> bool:
    try:
        return bool(isal_zlib.decompressobj(31).decompress(data[:512], 1))
    except InflateError:
        return False
