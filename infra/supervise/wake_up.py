"""What wakes a supervisor: signals and its own threads, as bytes in a pipe. Standard library alone."""

import contextlib
import os
import signal

_RUNG = 0  # written by a thread, where the kernel's bytes are signal numbers


class WakeUp:
    """One for the process: the signals of a process have one wake-up descriptor."""

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: None)  # the pipe carries the number; a handler must exist for it

    def ring(self) -> None:
        """Wake the supervisor; for other threads."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, bytes([_RUNG]))

    def signals(self) -> set[int]:
        """Those that came since the last call."""
        try:
            return set(os.read(self.descriptor, 4096)) - {_RUNG}
        except BlockingIOError:
            return set()
