"""A proxy and its workers on this machine: workers that end are replaced, and everything ends together.

A signal begins the end: new requests are told that nobody serves any more, workers finish what they have begun, and then the
proxy and every worker's process group go. A second signal doesn't wait for the workers.

On a cluster the same workers are started as jobs, with the proxy's URL; nothing here is needed for that.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from infra.serving.broker import Broker
from infra.serving.limits import ServingLimits
from infra.serving.proxy import Proxy
from infra.serving.worker import name_of
from infra.supervise.processes import PARENT_VARIABLE

FIRST_PAUSE_S = 0.2  # before a worker that ended is replaced; doubles while they end by themselves before STEADY_S
MAX_PAUSE_S = 30.0
STEADY_S = 60.0
KILL_S = 5.0  # after the drain: a worker that is still there is killed
FAILURES_IN_A_ROW = 5  # a worker that can't load its engine says so by its exit code


@dataclass(frozen=True)
class WorkerCommand:
    """How to start one worker: the engine to load and its arguments."""

    engine: str
    arguments: tuple[str, ...] = ()

    def argv(self, url: str, limits: ServingLimits) -> list[str]:
        command = [sys.executable, "-P", "-m", "infra.serving.worker", url, "--engine", self.engine, "--limits", limits.model_dump_json()]
        return [*command, *(f"--argument={argument}" for argument in self.arguments)]


class WorkersFail(RuntimeError):  # noqa: N818
    """Workers end by themselves, again and again, or can't answer the first request: no replacement will cure that."""


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers: those end the process when the proxy is down, before the workers are."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def leave(self) -> None:
        self.should_exit = True


async def serve(models: Sequence[str], command: WorkerCommand, limits: ServingLimits, *, workers: int, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT. It says when a request of its own has come back from an engine: then it is ready.

    Raises:
        OSError: the port is taken.
        WorkersFail: what a worker printed says why.
    """
    listener = socket.create_server((host, port))
    url = f"http://{host}:{listener.getsockname()[1]}"
    proxy = Proxy(models, limits)
    server = _Server(uvicorn.Config(proxy.application(), log_level="warning", timeout_graceful_shutdown=2))
    leaving, hurrying = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: (hurrying if leaving.is_set() else leaving).set())
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    keepers = [asyncio.create_task(_keep(command.argv(url, limits), proxy.broker, hurrying)) for _ in range(workers)]
    print(f"serving {', '.join(models)} at {url}/v1 with {workers} worker{'' if workers == 1 else 's'}", flush=True)
    signalled = asyncio.create_task(leaving.wait())
    first = [asyncio.create_task(_first_answer(url, models[0], limits))] if workers else []
    try:
        watched: set[asyncio.Task[Any]] = {serving, signalled, *keepers, *first}
        while not leaving.is_set() and not serving.done():
            done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
    finally:
        proxy.close()
        for task in (signalled, *first, *keepers):
            task.cancel()
        await asyncio.gather(signalled, *first, *keepers, return_exceptions=True)
        server.leave()
        await serving


async def _first_answer(url: str, model: str, limits: ServingLimits) -> None:
    """Ask for one token and wait for it: proxy, broker, worker and engine all work."""
    started_s = asyncio.get_running_loop().time()
    asked = {"model": model, "prompt": "a", "max_tokens": 1, "temperature": 0}
    async with httpx.AsyncClient(base_url=url, timeout=None) as client:
        try:
            async with asyncio.timeout(limits.start_s):
                reply = await client.post("/v1/completions", json=asked)
        except TimeoutError:
            raise WorkersFail(f"no worker answered in {limits.start_s:g} s (start_s); read what they printed") from None
    if reply.status_code != httpx.codes.OK:
        raise WorkersFail(f"the first request failed: {reply.json()['error']['message']}")
    print(f"ready: the first answer took {asyncio.get_running_loop().time() - started_s:.1f} s", flush=True)


async def _keep(argv: list[str], broker: Broker, hurrying: asyncio.Event) -> None:
    """Keep one worker alive; when cancelled, drain it."""
    pause_s, failures = FIRST_PAUSE_S, 0
    while True:
        env = {**os.environ, PARENT_VARIABLE: str(os.getpid())}
        worker = await asyncio.create_subprocess_exec(*argv, env=env, stdin=subprocess.DEVNULL, process_group=0)
        started_s = asyncio.get_running_loop().time()
        try:
            await worker.wait()
        finally:
            await _end(worker, broker.limits, hurrying)
            broker.lost(name_of(worker.pid))
        steady = asyncio.get_running_loop().time() - started_s >= STEADY_S
        failures = failures + 1 if (worker.returncode or 0) > 0 and not steady else 0
        if failures == FAILURES_IN_A_ROW:
            raise WorkersFail(
                f"{failures} workers in a row ended with an exit code (the last with {worker.returncode}); read what they printed"
            )
        pause_s = FIRST_PAUSE_S if steady else min(MAX_PAUSE_S, 2 * pause_s)
        print(f"worker {worker.pid} ended with {worker.returncode}; the next one starts in {pause_s:g} s", file=sys.stderr, flush=True)
        await asyncio.sleep(pause_s)


async def _end(worker: asyncio.subprocess.Process, limits: ServingLimits, hurrying: asyncio.Event) -> None:
    """Ask, wait, and then kill the whole group: an engine's own children hold the accelerator."""
    if worker.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            worker.send_signal(signal.SIGTERM)
        waits = [asyncio.create_task(worker.wait()), asyncio.create_task(hurrying.wait())]
        await asyncio.wait(waits, timeout=limits.drain_s + KILL_S, return_when=asyncio.FIRST_COMPLETED)
        waits[1].cancel()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    await worker.wait()
