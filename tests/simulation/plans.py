"""What a seed makes happen in a world, and troubles that make one kind of fault frequent."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from infra.dispatch.budgets import Budgets
from tests.simulation.actors import Fate
from tests.simulation.bucket import Weather
from tests.simulation.engine import Faults


@dataclass
class Plan:
    """What one seed makes happen."""

    engines: int
    dispatchers: int
    hosts: int
    dispatcher: Fate
    cancels: bool
    sweeps: bool
    clock_jumps: bool
    budgets: Budgets
    faults: Faults
    weather: Weather

    @classmethod
    def drawn(cls, seed: int) -> "Plan":
        """A world in which each kind of fault may or may not exist: rare ones must not hide behind frequent ones."""
        draw = random.Random(seed)

        def chance(most: float) -> float:
            return draw.choice((0.0, 0.0, most / 10, most))

        begin = draw.uniform(0, 100)
        return cls(
            engines=draw.choice((1, 1, 2)),
            dispatchers=draw.choice((1, 2, 3)),
            hosts=draw.choice((1, 1, 2, 3, 4)),
            dispatcher=Fate(mortality=chance(0.05), pausing=chance(0.02)),
            cancels=draw.random() < 0.1,
            sweeps=draw.random() < 0.3,
            clock_jumps=draw.random() < 0.3,
            budgets=Budgets(
                application=draw.choice((0, 0, 2)),
                infrastructure=draw.choice((3, 40)),  # a program whose attempts hardly ever live must come to an end, too
                crashes_before_first_step_in_a_row=draw.choice((3, 1000)),
                backoff_s=draw.choice((0.0, 1.0)),
            ),
            faults=Faults(
                unavailable=chance(0.3),
                slow_cancel=chance(0.5),
                never_starts=chance(0.5),
                mortality=chance(0.03),
                application_error=chance(0.5),
                pausing=chance(0.02),
                steps=draw.choice((1, 2, 3, 5, 15)),  # the last works for longer than it takes to be thought dead
            ),
            weather=Weather(
                lost_request=chance(0.2),
                lost_reply=chance(0.2),
                contended=chance(0.5),
                torn=chance(0.2),
                late=chance(0.1),
                slow=chance(0.02),
                outage_s=(begin, begin + draw.choice((0.0, 0.0, 120.0))),
            ),
        )


def _zombies(plan: Plan) -> Plan:
    """Two engines, long jobs, long pauses, and nothing else that could end a job before it is thought dead."""
    faults = replace(plan.faults, pausing=0.02, steps=15, mortality=0.0, application_error=0.0, never_starts=0.0)
    return replace(plan, engines=2, dispatchers=3, dispatcher=Fate(), cancels=False, faults=faults, weather=Weather())


def _gangs(plan: Plan) -> Plan:
    """Gangs that lose hosts, and whose programs are faultless."""
    faults = replace(plan.faults, mortality=0.05, steps=3, application_error=0.0, never_starts=0.0, pausing=0.0)
    return replace(plan, engines=1, hosts=3, cancels=False, faults=faults, weather=Weather())


def _storage(plan: Plan) -> Plan:
    """Storage that loses, conflicts and tears, and nothing else."""
    weather = Weather(lost_request=0.1, lost_reply=0.1, contended=0.5, torn=0.5)
    faults = replace(plan.faults, mortality=0.0, application_error=0.0, never_starts=0.0, pausing=0.0)
    return replace(plan, dispatcher=Fate(), cancels=False, faults=faults, weather=weather)


TROUBLES: dict[str, Callable[[Plan], Plan]] = {"any": lambda plan: plan, "zombies": _zombies, "gangs": _gangs, "storage": _storage}
