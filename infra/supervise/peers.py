"""Watches the other hosts of a gang from a thread of its own: slow storage must not blind the supervisor."""

import sys
import threading
from collections.abc import Callable

from infra.dispatch.endings import Ending
from infra.dispatch.gang import Fallen, read_end, read_fallen
from infra.storage.errors import StorageError

INTERVAL_S = 2.0


class PeerWatch:
    """Asks every `INTERVAL_S` whether a host fell, or host 0 succeeded, until one did.

    Storage that does not answer says nothing about peers.
    """

    def __init__(self, directory: str, *, on_news: Callable[[], None], interval_s: float = INTERVAL_S) -> None:
        self._directory = directory
        self._on_news = on_news
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self.fallen: Fallen | None = None
        self.succeeded = False
        self._thread = threading.Thread(target=self._ask_until_news, name="peers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask no more. Doesn't wait for a call that storage keeps hanging."""
        self._stopped.set()
        self._thread.join(timeout=1.0)

    def _ask_until_news(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                first = read_end(self._directory, 0)
                self.succeeded = first is not None and first.ending is Ending.SUCCEEDED
                self.fallen = None if self.succeeded else read_fallen(self._directory)
            except StorageError as error:
                print(f"supervisor: can't see how the gang's other hosts are: {error}", file=sys.stderr, flush=True)
                continue
            if self.succeeded or self.fallen is not None:
                self._on_news()
                return
