"""Beats the lease from a thread of its own: slow storage must not blind the supervisor."""

import sys
import threading
from collections.abc import Callable

from infra.artifacts.lease import Lease, LeaseLost
from infra.storage.errors import StorageError


class LeaseKeeper:
    """Beats at once and then every `interval_s`, until stopped or lost.

    Storage that does not answer is no loss: only a successor (or somebody else's claim) is.
    """

    def __init__(self, open_lease: Callable[[], Lease], *, interval_s: float, on_lost: Callable[[], None]) -> None:
        self._open_lease = open_lease
        self._lease: Lease | None = None
        self._interval_s = interval_s
        self._on_lost = on_lost
        self._stopped = threading.Event()
        self.lost: str | None = None
        self._thread = threading.Thread(target=self._beat_until_stopped, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Beat no more. Doesn't wait for a call that storage keeps hanging."""
        self._stopped.set()
        self._thread.join(timeout=1.0)

    def _beat_until_stopped(self) -> None:
        while not self._stopped.is_set():
            try:
                self._lease = self._lease or self._open_lease()
                self._lease.beat()
            except LeaseLost as lost:
                self.lost = str(lost)
                self._on_lost()
                return
            except StorageError as error:
                print(f"supervisor: the lease's beat is late: {error}", file=sys.stderr, flush=True)
            self._stopped.wait(self._interval_s)
