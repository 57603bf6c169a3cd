"""A worker: leases requests from a broker, has its engine answer them, and says that it lives while it does.

`python -m infra.serving.worker URL --engine module:function [--argument TEXT ...]`: the engine is made by calling the
function with the arguments. SIGTERM drains: what was begun is finished, or handed back when `drain_s` is over; then the worker
leaves. A second one ends it.
"""

import argparse
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import httpx

from infra.serving.limits import ServingLimits
from infra.serving.openai_api import Answer, RequestDeclined
from infra.supervise.processes import die_with_parent

STALLED = 124  # the exit code of the supervisor's contract: an engine that doesn't come back is a stall
RETRY_S = 0.5
HTTP_S = 30.0  # for one call to the broker; a lease is polled for less
NO_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None)  # the library's 100 would cap the slots

Say = Callable[[Sequence[str]], None]


class Engine(Protocol):
    """What answers requests, `slots` of them at a time."""

    @property
    def slots(self) -> int:
        """How many calls of `generate` may run side by side."""

    def generate(self, body: Mapping[str, Any], say: Say) -> Answer:
        """Answer one request.

        Args:
            body: a request's fields (infra.serving.openai_api), with a seed; `listed` says how many alternatives to list
                beside each token's log-probability, None that there are none to give.
            say: takes the next pieces of the text: for equal requests the same ones, however they are handed over. It raises when
                nobody waits for the answer any more; call it now and then with nothing.

        Raises:
            RequestDeclined: nobody could answer this request.
        """


class LeaseGone(Exception):  # noqa: N818
    """Nobody waits for this answer any more."""


@dataclass
class _Job:
    """A request at hand."""

    lease: str
    started_s: float
    said: int = 0
    is_wanted: bool = True


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
        self._client = httpx.Client(base_url=url, timeout=HTTP_S, limits=NO_LIMITS)
        self._jobs: dict[str, _Job] = {}
        self._free = threading.Semaphore(engine.slots)

    def run(self) -> bool:
        """Work until drained; False if requests were left that have to be handed back."""
        threading.Thread(target=self._watch, name="heartbeat", daemon=True).start()
        futures: set[Future[None]] = set()
        pool = ThreadPoolExecutor(self._engine.slots, thread_name_prefix="request")
        while not self.draining.is_set():
            if not self._free.acquire(timeout=self._limits.poll_s):
                continue
            found = self._tell("lease", worker=self.name)
            if not found or not found["lease"]:
                self._free.release()
                continue
            job = self._jobs[found["lease"]] = _Job(found["lease"], time.monotonic())
            futures = {future for future in futures if not future.done()} | {pool.submit(self._work, job, found["body"])}
        left = wait(futures, timeout=self._limits.drain_s).not_done
        pool.shutdown(wait=False)
        self._tell("leave", worker=self.name)
        return not left

    def _work(self, job: _Job, body: Mapping[str, Any]) -> None:
        def say(pieces: Sequence[str]) -> None:
            if not job.is_wanted:
                raise LeaseGone(job.lease)
            if not pieces or not body.get("stream"):
                return
            told = self._tell("say", lease=job.lease, position=job.said, pieces=list(pieces))
            if not (told or {}).get("accepted"):
                raise LeaseGone(job.lease)
            job.said += len(pieces)

        try:
            answer = self._engine.generate(body, say)
        except LeaseGone:
            return
        except RequestDeclined as declined:
            self._tell("decline", lease=job.lease, why=str(declined)[:1000], param=declined.param)
        except Exception as error:  # an engine may raise anything, and the next request may be fine
            self._tell("fail", lease=job.lease, why=f"{type(error).__name__}: {error}"[:1000])
        else:
            self._tell("answer", lease=job.lease, answer=answer.model_dump())
        finally:
            del self._jobs[job.lease]
            self._free.release()

    def _watch(self) -> None:
        """Say that this worker lives, until its engine has been too long at one request."""
        while True:
            jobs = list(self._jobs.values())
            if any(time.monotonic() - job.started_s >= self._limits.engine_s for job in jobs):
                print(f"worker {self.name}: the engine did not answer in {self._limits.engine_s:g} s", file=sys.stderr, flush=True)
                os._exit(STALLED)
            if jobs:
                told = self._tell("hear", worker=self.name, leases=[job.lease for job in jobs])
                gone = set((told or {}).get("gone", ()))
                for job in jobs:
                    job.is_wanted = job.lease not in gone
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


def name_of(pid: int) -> str:
    """What a worker process on this machine calls itself, unless it is told otherwise."""
    return f"{socket.gethostname()}-{pid}"


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
    parser.add_argument("--name", default=name_of(os.getpid()))
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
    if not worker.run():
        os._exit(0)  # what was handed back is still being answered by threads that nobody waits for
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
