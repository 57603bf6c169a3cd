"""A broker under a clock that a test sets."""

from dataclasses import dataclass

from infra.serving.broker import Broker
from infra.serving.limits import ServingLimits


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def brokered(clock: Clock, **limits: float) -> Broker:
    return Broker(ServingLimits(**{"engine_s": 5, "lease_s": 8, "request_s": 60, "poll_s": 1, "silence_s": 3, **limits}), clock=clock)
