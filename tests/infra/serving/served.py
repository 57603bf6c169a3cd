"""A pool in a process of its own, and the official client for it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import openai
import psutil

from infra.serving.limits import ServingLimits
from tests.infra.dispatch.builders import wait_for

SOURCES = Path(__file__).parents[3]
LIMITS = ServingLimits(engine_s=5, lease_s=6, request_s=60, poll_s=0.2, silence_s=1.0, pending=8, attempts=3, retry_after_s=1)
ENGINE = "tests.infra.serving.engines:echo"
RUN = """
import asyncio, sys
from infra.serving.limits import ServingLimits
from infra.serving.pool import WorkerCommand, serve
limits, workers, port = ServingLimits.model_validate_json(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
command = WorkerCommand(sys.argv[4], tuple(sys.argv[5:]))
asyncio.run(serve(["echo"], command, limits, workers=workers, host="127.0.0.1", port=port))
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Served:
    """A pool in a process of its own."""

    def __init__(self, workers: int, limits: ServingLimits = LIMITS, engine: str = ENGINE, arguments: tuple[str, ...] = ()) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        env = {**os.environ, "PYTHONPATH": f"{SOURCES}:{os.environ.get('PYTHONPATH', '')}"}
        command = [sys.executable, "-c", RUN, limits.model_dump_json(), str(workers), str(port), engine, *arguments]
        self._clients: list[openai.OpenAI] = []
        self.process = psutil.Popen(command, env=env, cwd=SOURCES, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self._answers, "the proxy")
        wait_for(lambda: workers == 0 or self.state()["answered"], "the pool's own first request")

    def client(self) -> openai.OpenAI:
        self._clients.append(openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", timeout=60, max_retries=0))
        return self._clients[-1]

    def close(self) -> None:
        """End the pool, and require that it took its workers along."""
        for client in self._clients:
            client.close()
        children = self.process.children(recursive=True) if self.process.is_running() else []
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]

    def workers(self) -> list[psutil.Process]:
        return [child for child in self.process.children() if child.status() != psutil.STATUS_ZOMBIE]

    def state(self) -> dict[str, int]:
        return dict(httpx.get(f"{self.url}/broker/state", timeout=10).json())

    def _answers(self) -> bool:
        assert self.process.poll() is None
        try:
            return httpx.get(f"{self.url}/v1/models", timeout=10).status_code == 200
        except httpx.TransportError:
            return False
