"""What happened in a world, in order, and what must never happen."""

from collections.abc import Callable
from dataclasses import dataclass, field


class Violation(AssertionError):  # noqa: N818
    """An invariant does not hold. `invariant` is its name."""

    def __init__(self, invariant: str, why: str) -> None:
        super().__init__(f"{invariant}: {why}")
        self.invariant = invariant


@dataclass
class History:
    """Events with their time, who did it and what. Checks run after each."""

    now: Callable[[], float]
    who: Callable[[], str]
    events: list[str] = field(default_factory=list)

    def add(self, what: str) -> None:
        self.events.append(f"{self.now():8.1f} s  {self.who():<24}  {what}")

    def __str__(self) -> str:
        return "\n".join(self.events)
