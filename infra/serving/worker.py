"""A worker: leases requests from a broker, has its engine answer them, and says that it lives while it does.

`python -m infra.serving.worker URL --engine module:function [--argument TEXT ...]`: the engine is made by calling the
function with the arguments. SIGTERM drains: the request at hand is finished, then the worker leaves. A second one ends it.
"""

import argparse
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

import httpx

from infra.serving.limits import ServingLimits
from infra.serving.openai_api import Answer
from infra.supervise.processes import die_with_parent

STALLED = 124  # the exit code of the supervisor's contract: an engine that doesn't come back is a stall
RETRY_S = 0.5
HTTP_S = 30.0  # for one call to the broker; a lease is polled for less


class Engine(Protocol):
    """What answers a request. `say` may be called with pieces of the text as they come: for equal requests, the same ones."""

    def generate(self, body: Mapping[str, Any], say: Callable[[str], None]) -> Answer: ...


class LeaseGone(Exception):  # noqa: N818
    """Nobody waits for this answer any more."""


class Worker:
    """One engine at work.

    Args:
        url: of the proxy.
        name: unique in the fleet.
    """

    def __init__(self, url: str, name: str, engine: Engine, limits: ServingLimits) -> None:
        self.name = name
        self.draining = threading.Event()
        self._engine = engine
        self._limits = limits
        self._client = httpx.Client(base_url=url, timeout=HTTP_S)
        self._started_s: float | None = None  # of the request at hand

    def run(self) -> None:
        """Work until drained."""
        threading.Thread(target=self._watch, name="heartbeat", daemon=True).start()
        while not self.draining.is_set():
            if (found := self._tell("lease", worker=self.name)) and found["lease"]:
                self._work(found["lease"], found["body"])
        self._tell("leave", worker=self.name)

    def _work(self, lease: str, body: Mapping[str, Any]) -> None:
        said = 0

        def say(text: str) -> None:
            nonlocal said
            if body.get("stream") and not (self._tell("say", lease=lease, position=said, text=text) or {}).get("accepted"):
                raise LeaseGone(lease)
            said += 1

        self._started_s = time.monotonic()
        try:
            answer = self._engine.generate(body, say)
        except LeaseGone:
            return
        except Exception as error:  # an engine may raise anything, and the next request may be fine
            self._tell("fail", lease=lease, why=f"{type(error).__name__}: {error}"[:1000])
        else:
            self._tell("answer", lease=lease, answer=answer.model_dump())
        finally:
            self._started_s = None

    def _watch(self) -> None:
        """Say that this worker lives, until its engine has been too long at one request."""
        while True:
            started_s = self._started_s
            if started_s is not None and time.monotonic() - started_s >= self._limits.engine_s:
                print(f"worker {self.name}: the engine did not answer in {self._limits.engine_s:g} s", file=sys.stderr, flush=True)
                os._exit(STALLED)
            if started_s is not None:
                self._tell("hear", worker=self.name)
            time.sleep(self._limits.poll_s)

    def _tell(self, verb: str, **told: Any) -> dict[str, Any] | None:
        """Ask the broker, again while it is away and this worker isn't leaving; None if it said no."""
        while True:
            try:
                reply = self._client.post(f"/broker/{verb}", json=told)
            except httpx.TransportError:
                if self.draining.is_set():
                    return None
                time.sleep(RETRY_S)
                continue
            return reply.json() if reply.status_code == httpx.codes.OK else None


def load_engine(path: str, arguments: list[str]) -> Engine:
    """Call the function at `module:function`.

    Raises:
        ValueError: there is no such function.
    """
    module, _, name = path.partition(":")
    try:
        make = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"engine {path!r} can't be loaded ({error}); name it as module:function") from error
    engine: Engine = make(*arguments)
    return engine


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.serving.worker", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--engine", required=True)
    parser.add_argument("--name", default=f"{socket.gethostname()}-{os.getpid()}")
    parser.add_argument("--limits", default="{}", help="ServingLimits as JSON; the proxy's own")
    parser.add_argument("--argument", action="append", default=[], help="for the engine's function; may be repeated")
    options = parser.parse_args(arguments)
    die_with_parent()
    limits = ServingLimits.model_validate_json(options.limits)
    worker = Worker(options.url, options.name, load_engine(options.engine, options.argument), limits)

    def drain(number: int, frame: object) -> None:
        if worker.draining.is_set():
            os._exit(128 + number)
        worker.draining.set()

    signal.signal(signal.SIGTERM, drain)
    worker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
