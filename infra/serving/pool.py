"""A proxy and its workers on this machine: workers that end are replaced, and everything ends together.

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

import uvicorn

from infra.serving.limits import ServingLimits
from infra.serving.proxy import Proxy
from infra.supervise.processes import PARENT_VARIABLE

FIRST_PAUSE_S = 0.2  # before a worker that ended is replaced; doubles while they end by themselves before STEADY_S
MAX_PAUSE_S = 30.0
STEADY_S = 60.0
DRAIN_S = 30.0
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
    """Workers end by themselves, again and again: no replacement will cure that."""


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers: those end the process when the proxy is down, before the workers are."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def leave(self) -> None:
        self.should_exit = True


async def serve(models: Sequence[str], command: WorkerCommand, limits: ServingLimits, *, workers: int, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT; then drain the workers and end them, group by group.

    Raises:
        OSError: the port is taken.
        WorkersFail: what a worker printed says why.
    """
    listener = socket.create_server((host, port))
    url = f"http://{host}:{listener.getsockname()[1]}"
    config = uvicorn.Config(Proxy(models, limits).application(), log_level="warning", timeout_graceful_shutdown=2)
    server = _Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.leave)
    proxy = asyncio.create_task(server.serve(sockets=[listener]))
    keepers = [asyncio.create_task(_keep(command.argv(url, limits))) for _ in range(workers)]
    print(f"serving {', '.join(models)} at {url}/v1 with {workers} workers", flush=True)
    try:
        done, _ = await asyncio.wait([proxy, *keepers], return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            ended.result()
    finally:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        server.leave()
        await proxy


async def _keep(argv: list[str]) -> None:
    """Keep one worker alive; when cancelled, drain it."""
    pause_s, failures = FIRST_PAUSE_S, 0
    while True:
        env = {**os.environ, PARENT_VARIABLE: str(os.getpid())}
        worker = await asyncio.create_subprocess_exec(*argv, env=env, stdin=subprocess.DEVNULL, process_group=0)
        started_s = asyncio.get_running_loop().time()
        try:
            await worker.wait()
        finally:
            await _end(worker)
        steady = asyncio.get_running_loop().time() - started_s >= STEADY_S
        failures = failures + 1 if (worker.returncode or 0) > 0 and not steady else 0
        if failures == FAILURES_IN_A_ROW:
            raise WorkersFail(
                f"{failures} workers in a row ended with an exit code (the last with {worker.returncode}); read what they printed"
            )
        pause_s = FIRST_PAUSE_S if steady else min(MAX_PAUSE_S, 2 * pause_s)
        print(f"worker {worker.pid} ended with {worker.returncode}; the next one starts in {pause_s:g} s", file=sys.stderr, flush=True)
        await asyncio.sleep(pause_s)


async def _end(worker: asyncio.subprocess.Process) -> None:
    """Ask, wait, and then kill the whole group: an engine's own children hold the accelerator."""
    if worker.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            worker.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(worker.wait(), DRAIN_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    await worker.wait()
