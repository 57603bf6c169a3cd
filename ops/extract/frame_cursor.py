"""A cursor over Zstandard and LZ4 archives, whose frames only the decoder can tell apart."""

import io
from typing import IO, Protocol

from fastwarc.stream_io import Lz4Reader, ZstdReader

from ops.extract.cursor import DamagedError

READERS = {
    b"\x28\xb5\x2f\xfd": ZstdReader,
    b"\x5d\x2a\x4d\x18": ZstdReader,
    b"\x04\x22\x4d\x18": Lz4Reader,
}  # the second: a dictionary first


class _Reader(Protocol):
    def read(self, size: int) -> bytes: ...

    def inner_tell(self) -> int: ...

    def frame_start_position(self) -> int | None: ...


class FrameCursor:
    """Reads no byte ahead but one: the decoder says in which frame the byte lies that was read last, and nothing else.

    After damage the rest of the file is lost, for there is no telling where a frame begins.
    """

    def __init__(self, stream: IO[bytes], magic: bytes) -> None:
        self._size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        self._reader: _Reader = READERS[magic](stream)
        self._frame = 0  # of what was read
        self._next = b""  # the byte read ahead
        self._next_frame = 0
        self._started = 0
        self._is_lost = False
        self._damage: DamagedError | None = None  # met while looking ahead; the bytes before it are good

    def start(self) -> int | None:
        if not self._look_ahead():
            if self._damage is None:
                return None
            damage, self._damage, self._frame, self._is_lost = self._damage, None, self._next_frame, True
            raise damage
        self._started = self._frame = self._next_frame
        return self._started

    def position(self) -> int:
        if self._look_ahead() and self._next_frame == self._frame:
            return self._reader.inner_tell()
        return self._next_frame if self._next or self._damage else self._size

    def peek(self, size: int) -> bytes:
        """One byte at most: enough to see a line's end."""
        return self._next if self._look_ahead() and self._next_frame == self._frame else b""

    def readline(self, limit: int) -> bytes:
        line = bytearray()
        while len(line) < limit and not line.endswith(b"\n") and (byte := self.peek(1)):
            line += byte
            self._next = b""
        return bytes(line)

    def read(self, size: int) -> bytes:
        if size == 0 or not self.peek(1):
            return b""
        data, self._next = self._next, b""
        rest = self._decode(size - 1) if size > 1 else b""
        if (self._reader.frame_start_position() or 0) != self._frame:
            self._is_lost = True
            raise DamagedError("bad-record", "the record goes on into another frame")
        return data + rest

    def skip(self, size: int) -> int:
        skipped = 0
        while skipped < size and (data := self.read(min(size - skipped, 1 << 16))):
            skipped += len(data)
        return skipped

    def recover(self) -> None:
        """To the next frame, if the decoder gets there."""
        while self.peek(1):
            self._next = b""

    def _look_ahead(self) -> bool:
        if not self._next and not self._is_lost and self._damage is None:
            try:
                self._next = self._decode(1)
            except DamagedError as damage:
                self._damage = damage
            self._next_frame = self._reader.frame_start_position() or 0
        return bool(self._next)

    def _decode(self, size: int) -> bytes:
        data = bytearray()
        try:
            while len(data) < size and (chunk := self._reader.read(size - len(data))):
                data += chunk
        except OSError as error:
            self._is_lost = True
            reason = "truncated" if "incomplete" in str(error) else "bad-record"
            raise DamagedError(reason, f"the frame at offset {self._reader.frame_start_position()} does not decode: {error}") from error
        return bytes(data)
