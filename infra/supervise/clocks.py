"""Three clocks over one process: start-up grace, step, wall. Pure: times in, verdict out."""

from dataclasses import dataclass, replace
from typing import Literal

Expired = Literal["start", "step", "wall"]


@dataclass(frozen=True)
class Clocks:
    """Limits in seconds, and what is known of the process, on one machine's monotonic clock.

    Attributes:
        last_step_s: when the last step was completed; None until the first one, and never None again.
    """

    start_grace_s: float
    step_s: float
    wall_s: float | None
    started_s: float
    last_step_s: float | None = None

    def stepped(self, now_s: float) -> "Clocks":
        """A step was completed. This ends the start-up grace for good."""
        return replace(self, last_step_s=now_s)

    def next_deadline_s(self) -> float:
        """When something expires unless a step is completed before."""
        return min(deadline for deadline, _ in self._deadlines())

    def expired(self, now_s: float) -> Expired | None:
        """Which clock has run out, the earliest first."""
        deadline, which = min(self._deadlines())
        return which if now_s >= deadline else None

    def _deadlines(self) -> list[tuple[float, Expired]]:
        found: list[tuple[float, Expired]] = []
        if self.last_step_s is None:
            found.append((self.started_s + self.start_grace_s, "start"))
        else:
            found.append((self.last_step_s + self.step_s, "step"))
        if self.wall_s is not None:
            found.append((self.started_s + self.wall_s, "wall"))
        return found


def sentence(which: Expired, clocks: Clocks) -> str:
    """What expired, in words."""
    if which == "start":
        return f"no step was completed in the first {clocks.start_grace_s:g} s (timeouts.start_grace_s)"
    if which == "step":
        return f"no step was completed for {clocks.step_s:g} s (timeouts.step_s)"
    return f"the process ran longer than {clocks.wall_s or 0:g} s (timeouts.wall_s)"
