"""How long a client waits for what does not change: by its own monotonic clock, so that no two machines' clocks are compared."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infra.dispatch.engines.kubernetes import observation

Found = Mapping[str, Any]


class Patience:
    """Of one client. A fresh one knows nothing, so it takes a whole time before it gives anything up.

    Args:
        start_s: how long containers may fail to be created.
        lost_s: how long a pod may be dying beyond its grace.
        clock: monotonic seconds.
    """

    def __init__(self, start_s: float, lost_s: float, clock: Callable[[], float]) -> None:
        self._start_s = start_s
        self._lost_s = lost_s
        self._clock = clock
        self._since: dict[tuple[str, str], float] = {}

    def left(self, pods: Sequence[Found]) -> list[Found]:
        """Pods of which a process may be left."""
        return [pod for pod in observation.living(pods) if not self.is_lost(pod)]

    def is_lost(self, pod: Found) -> bool:
        """Whether the pod's node is gone or cut off. The lease fences whatever may still run there."""
        if not observation.is_deleting(pod):
            return False
        grace_s = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        return self._lasts(("dying", pod["metadata"]["uid"]), grace_s + self._lost_s)

    def trouble_that_stays(self, jobset_uid: str, pods: Sequence[Found]) -> str | None:
        """Why a container could not be created in all that time."""
        key, trouble = ("stuck", jobset_uid), observation.cannot_start(pods)
        if trouble is None:
            self._since.pop(key, None)
            return None
        return f"its container could not start for {self._start_s:.0f} s: {trouble}" if self._lasts(key, self._start_s) else None

    def _lasts(self, what: tuple[str, str], patience_s: float) -> bool:
        return self._clock() - self._since.setdefault(what, self._clock()) >= patience_s
