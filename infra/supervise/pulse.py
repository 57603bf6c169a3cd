"""The pipe from worker to supervisor: a dot per completed step, a mark per committed checkpoint, and at last why it failed.

A pipe and not a file: a full disk can't stop it, and the supervisor needn't poll.
"""

import json
import os
import select
import time
from dataclasses import dataclass

DESCRIPTOR_VARIABLE = "SEAWAY_PULSE_FD"
BEAT_INTERVAL_S = 0.05  # a program may report every record; the supervisor needn't wake for each
MAX_CHARS = 5_000  # of sentence and tail each: the failure fits into a pipe of 64 KiB even if every character is escaped
PATIENCE_S = 5.0  # a supervisor that doesn't read for so long is stopped or gone


@dataclass(frozen=True)
class Failure:
    """Why the worker gives up: an `Ending` value, one sentence, and the last lines of the traceback."""

    ending: str
    what: str
    tail: tuple[str, ...]


class Pulse:
    """The worker's end. Without a supervisor it is silent."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._last_beat_s = float("-inf")
        if descriptor is not None:
            os.set_inheritable(descriptor, False)
            os.set_blocking(descriptor, False)

    @classmethod
    def of_environment(cls) -> "Pulse":
        named = os.environ.pop(DESCRIPTOR_VARIABLE, None)
        return cls(int(named) if named else None)

    def beat(self) -> None:
        """A step was completed."""
        now = time.monotonic()
        if now - self._last_beat_s >= BEAT_INTERVAL_S and self._write(b"."):
            self._last_beat_s = now

    def saved(self) -> None:
        """A checkpoint was committed."""
        self._write(b"!")

    def fail(self, failure: Failure) -> None:
        """Say why; give up if nobody reads for `PATIENCE_S`."""
        told = {"ending": failure.ending, "what": failure.what[:MAX_CHARS], "tail": _last_lines(failure.tail)}
        rest = json.dumps(told).encode() + b"\n"
        deadline = time.monotonic() + PATIENCE_S
        while rest and self._descriptor is not None and time.monotonic() < deadline:
            select.select([], [self._descriptor], [], 0.5)
            rest = rest[self._write(rest) :]

    def _write(self, data: bytes) -> int:
        if self._descriptor is None:
            return 0
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:  # full: the supervisor is behind, and that mustn't stop the work
            return 0
        except BrokenPipeError:  # the supervisor is gone; the kernel is about to tell this process
            self._descriptor = None
            return 0


class PulseReader:
    """The supervisor's end."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.failure: Failure | None = None
        self.saved = 0
        self.is_open = True
        self._told = b""

    def drain(self) -> int:
        """Read what is there; give the number of beats in it. `is_open` turns False when the worker has closed its end."""
        beats = 0
        while data := self._read():
            dots, brace, rest = (b"", b"", data) if self._told else data.partition(b"{")
            beats += dots.count(b".")
            self.saved += dots.count(b"!")
            self._told += brace + rest
        if self._told.endswith(b"\n"):
            failure = json.loads(self._told)
            self.failure = Failure(failure["ending"], failure["what"], tuple(failure["tail"]))
        return beats

    def _read(self) -> bytes:
        try:
            data = os.read(self.descriptor, 65_536)
        except BlockingIOError:
            return b""
        self.is_open = bool(data)
        return data


def _last_lines(lines: tuple[str, ...]) -> list[str]:
    kept: list[str] = []
    room = MAX_CHARS
    for line in reversed(lines):
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return kept[::-1]
