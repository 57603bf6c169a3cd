"""What a program reports becomes a heartbeat for the supervisor and, now and then, a message with rate and time left."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

Clock = Callable[[], float]
MESSAGE_INTERVAL_S = 1.0
WINDOW_S = 30.0  # long enough to smooth a slow batch, short enough to forget the compilation


class Rate:
    """Work per second over the last `WINDOW_S`."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def add(self, now_s: float, done: int) -> float | None:
        """Take a point; give the rate, or None while nothing can be said."""
        if self._points and done < self._points[-1][1]:
            self._points.clear()  # another phase began
        self._points.append((now_s, done))
        while len(self._points) > 2 and now_s - self._points[1][0] >= WINDOW_S:
            self._points.popleft()
        then_s, done_then = self._points[0]
        return (done - done_then) / (now_s - then_s) if now_s > then_s else None


class Reporter:
    """The `progress` of a job's writer."""

    def __init__(self, beat: Callable[[], None], report: Callable[[Mapping[str, Any]], None], clock: Clock = time.monotonic) -> None:
        self._beat = beat
        self._report = report
        self._clock = clock
        self._rate = Rate()
        self._unit = ""
        self._last_report_s = float("-inf")
        self._unreported: Mapping[str, Any] | None = None

    def __call__(self, done: int, total: int | None, unit: str, **measures: float) -> None:
        self._beat()
        now_s = self._clock()
        if unit != self._unit:
            self._unit, self._rate = unit, Rate()
        elif now_s - self._last_report_s < MESSAGE_INTERVAL_S:
            self._unreported = {"kind": "progress", "done": int(done), "total": total, "unit": unit, "measures": _floats(measures)}
            return
        per_second = self._rate.add(now_s, int(done))
        eta_s = (total - done) / per_second if total is not None and per_second else None
        told = {"kind": "progress", "done": int(done), "total": total, "unit": unit, "measures": _floats(measures)}
        self._report({**told, "per_second": per_second, "eta_s": eta_s})
        self._last_report_s, self._unreported = now_s, None

    def finish(self) -> None:
        """Report the last call if it came too soon after the one before."""
        if self._unreported is not None:
            self._report(self._unreported)
            self._unreported = None


def _floats(measures: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in measures.items()}
