"""Actors that run one at a time, in an order drawn from a seed, on clocks that only the scheduler moves.

Real code runs in each actor. Wherever it touches storage, the engine or the clock, it hands over, and the seed
decides who goes on: so every interleaving can happen, and any one happens again with its seed.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from greenlet import getcurrent, greenlet

from tests.simulation.history import Violation

MAX_TURNS = 100_000
EPOCH_S = 1_800_000_000.0


class Killed(BaseException):
    """kill -9, as an actor feels it: everything it does from here on has no effect."""


@dataclass(eq=False)
class Machine:
    """A host with a wall clock of its own, on which everything stands still until `frozen_until_s`.

    Attributes:
        jumps: (from when on, by how many seconds) its wall clock is wrong. Its monotonic clock never is.
    """

    name: str
    jumps: Sequence[tuple[float, float]] = ()
    frozen_until_s: float = 0.0

    def wall_s(self, now_s: float) -> float:
        return EPOCH_S + now_s + sum(by_s for from_s, by_s in self.jumps if from_s <= now_s)


@dataclass
class Fate:
    """What can happen to an actor at each hand-over.

    Attributes:
        mortality: chance that it dies.
        pausing: chance that it stands still for minutes (a long collection, SIGSTOP, a live migration), or its whole machine.
        on_death: called when it dies of its mortality.
    """

    mortality: float = 0.0
    pausing: float = 0.0
    on_death: Callable[[], None] = lambda: None


@dataclass(eq=False)
class Actor:
    name: str
    machine: Machine
    fate: Fate
    wake_s: float
    thread: greenlet = field(init=False)
    is_done: bool = False
    is_killed: bool = False
    error: BaseException | None = None

    @property
    def is_gone(self) -> bool:
        """Whether nothing that it does has an effect any more."""
        return self.is_done or self.is_killed

    @property
    def ready_s(self) -> float:
        return max(self.wake_s, self.machine.frozen_until_s)


class Scheduler:
    """Gives turns until every actor is done."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_s = 0.0
        self.turns = 0
        self._actors: list[Actor] = []
        self._by_thread: dict[greenlet, Actor] = {}
        self._hub = getcurrent()

    def spawn(self, name: str, function: Callable[[], None], machine: Machine, fate: Fate | None = None, *, after_s: float = 0.0) -> Actor:
        actor = Actor(name, machine, fate or Fate(), self.now_s + after_s)
        actor.thread = greenlet(lambda: self._live(actor, function), self._hub)
        self._by_thread[actor.thread] = actor
        self._actors.append(actor)
        return actor

    def current(self) -> Actor | None:
        """The actor that runs now, or None outside of any."""
        return self._by_thread.get(getcurrent())

    def kill(self, actor: Actor) -> None:
        """End an actor at once, from outside."""
        if not actor.is_gone:
            actor.is_killed = True
            actor.wake_s = self.now_s

    def hand_over(self, seconds: float = 0.0) -> None:
        """Let others go on; come back when `seconds` have passed and the seed says so."""
        actor = self.current()
        if actor is None:
            return
        self._require_alive(actor)
        actor.wake_s = self.now_s + seconds
        self._pause(actor)
        self._hub.switch()
        if actor.fate.mortality and not actor.is_killed and self.random.random() < actor.fate.mortality:
            actor.is_killed = True
            actor.fate.on_death()
        self._require_alive(actor)

    def run(self) -> None:
        """Give turns until nobody is left.

        Raises:
            Violation: they never come to an end.
            Exception: that an actor died of.
        """
        while self._actors:
            self.turns += 1
            if self.turns > MAX_TURNS:
                names = ", ".join(actor.name for actor in self._actors)
                raise Violation("everybody_gets_an_answer", f"no end after {MAX_TURNS} turns: {names} go round in circles")
            now_s = min([actor.ready_s for actor in self._actors])
            self.now_s = max(self.now_s, now_s)
            actor = self.random.choice([actor for actor in self._actors if actor.ready_s <= self.now_s])
            actor.thread.switch()
            if actor.is_done:
                self._actors.remove(actor)
                del self._by_thread[actor.thread]
            if actor.error is not None:
                raise actor.error

    def close(self) -> None:
        """End whoever is left, as after a violation."""
        for actor in self._actors:
            actor.is_killed = True
            with suppress(Killed):
                actor.thread.throw(Killed)

    def _pause(self, actor: Actor) -> None:
        if actor.fate.pausing and self.random.random() < actor.fate.pausing:
            until_s = self.now_s + self.random.uniform(60, 300)
            if self.random.random() < 0.5:
                actor.machine.frozen_until_s = until_s
            else:
                actor.wake_s = max(actor.wake_s, until_s)

    def _require_alive(self, actor: Actor) -> None:
        if actor.is_killed:
            raise Killed

    def _live(self, actor: Actor, function: Callable[[], None]) -> None:
        try:
            if not actor.is_killed:
                function()
        except Killed:
            pass
        except BaseException as error:
            actor.error = error
        finally:
            actor.is_done = True
