"""Jobs that run beside the test."""

import threading
from pathlib import Path

from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.job import Job
from infra.dispatch.outcome import Outcome
from tests.infra.dispatch.builders import wait_for


class Running:
    """A call of `run` in a thread, which ends with the test run if it hangs."""

    def __init__(self, dispatcher: Dispatcher, job: Job) -> None:
        self._outcome: Outcome | Exception | None = None

        def call() -> None:
            try:
                self._outcome = dispatcher.run(job)
            except Exception as error:
                self._outcome = error

        self._thread = threading.Thread(target=call, daemon=True)
        self._thread.start()

    def result(self, deadline_s: float = 60.0) -> Outcome:
        """What the call returned or raised."""
        self._thread.join(deadline_s)
        assert self._outcome is not None, f"the job goes on after {deadline_s:.0f} s"
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def arrived(gate: Path) -> int:
    """The pid of the worker that waits at the gate."""
    found = wait_for(lambda: [path.name for path in gate.glob("worker-*")], "a worker at the gate")
    return int(found[-1].removeprefix("worker-"))
