"""Actors that run one at a time, in an order drawn from a seed, on a clock that only the scheduler moves.

Real code runs in each actor. Wherever it touches storage, the engine or the clock, it hands over, and the seed
decides who goes on: so every interleaving can happen, and any one happens again with its seed.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

MAX_TURNS = 50_000


class Killed(BaseException):
    """kill -9, as an actor feels it: everything it does from here on has no effect."""


@dataclass(eq=False)
class Actor:
    name: str
    mortality: float
    wake_s: float = 0.0
    is_done: bool = False
    is_killed: bool = False
    error: BaseException | None = None
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Scheduler:
    """Gives turns until every actor is done."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_s = 0.0
        self._actors: list[Actor] = []
        self._by_thread: dict[int, Actor] = {}
        self._handed_over = threading.Semaphore(0)

    def spawn(self, name: str, function: Callable[[], None], *, mortality: float = 0.0, after_s: float = 0.0) -> Actor:
        """Add an actor. `mortality` is its chance to be killed at each hand-over."""
        actor = Actor(name, mortality, self.now_s + after_s)
        thread = threading.Thread(target=self._live, args=(actor, function), name=name, daemon=True)
        self._actors.append(actor)
        thread.start()
        return actor

    def current(self) -> Actor | None:
        """The actor that runs in this thread, or None in a thread that an actor's code started."""
        return self._by_thread.get(threading.get_ident())

    def hand_over(self, seconds: float = 0.0) -> None:
        """Let others go on; come back when `seconds` have passed and the seed says so."""
        actor = self.current()
        if actor is None:
            return
        actor.wake_s = self.now_s + seconds
        self._handed_over.release()
        actor.turn.acquire()
        if self.random.random() < actor.mortality:
            actor.is_killed = True
        if actor.is_killed:
            raise Killed

    def run(self) -> None:
        """Give turns until nobody is left.

        Raises:
            AssertionError: they never come to an end.
            Exception: that an actor died of.
        """
        for _ in range(MAX_TURNS):
            living = [actor for actor in self._actors if not actor.is_done]
            if not living:
                return
            self.now_s = max(self.now_s, min(actor.wake_s for actor in living))
            actor = self.random.choice([actor for actor in living if actor.wake_s <= self.now_s])
            actor.turn.release()
            self._handed_over.acquire()
            if actor.error is not None:
                raise actor.error
        raise AssertionError(f"no end after {MAX_TURNS} turns: {', '.join(actor.name for actor in living)} go round in circles")

    def _live(self, actor: Actor, function: Callable[[], None]) -> None:
        self._by_thread[threading.get_ident()] = actor
        actor.turn.acquire()
        try:
            function()
        except Killed:
            pass
        except BaseException as error:
            actor.error = error
        finally:
            actor.is_done = True
            del self._by_thread[threading.get_ident()]
            self._handed_over.release()
