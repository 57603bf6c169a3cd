"""What the ranks of a gang print, line by line and each line with its rank, in the one log of their host.

A pipe per rank and not one shared file: a line names its rank even when C code or a signal handler wrote it, and what a
killed rank had printed is in the pipe already. Read by a thread, so that a supervisor that waits for storage keeps no rank
waiting.
"""

import os
import selectors
import sys
import threading

MAX_LINE_BYTES = 64 * 1024  # a longer one is cut: a program that never ends its line must still be heard
_CLOSE_WAIT_S = 2.0  # for what is still in the pipes; a process that escaped its supervisor may hold one open for ever


class RankLogs:
    """Pipes from the ranks to this process's stderr."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._rests: dict[int, bytes] = {}
        self._open = 0
        self._thread = threading.Thread(target=self._copy, name="rank logs", daemon=True)

    def open(self, rank: int) -> int:
        """A descriptor for what `rank` prints. The caller closes it once the rank has it. Before `start`."""
        read, write = os.pipe()
        self._selector.register(read, selectors.EVENT_READ, f"[{rank}] ".encode())
        self._rests[read] = b""
        self._open += 1
        return write

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Copy what is left of ranks that have ended."""
        self._thread.join(_CLOSE_WAIT_S)

    def _copy(self) -> None:
        while self._open:
            for key, _ in self._selector.select():
                self._copy_from(key.fd, key.data)

    def _copy_from(self, descriptor: int, prefix: bytes) -> None:
        data = os.read(descriptor, 65_536)
        *lines, rest = (self._rests[descriptor] + data).split(b"\n")
        if rest and (not data or len(rest) > MAX_LINE_BYTES):
            lines, rest = [*lines, rest], b""
        self._rests[descriptor] = rest
        _write(b"".join(prefix + line + b"\n" for line in lines))
        if not data:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            self._open -= 1


def _write(data: bytes) -> None:
    """To stderr, whole; a full disk loses a line and nothing else."""
    sys.stderr.flush()
    while data:
        try:
            data = data[os.write(2, data) :]
        except OSError:
            return
