"""Starts and stops the documentation server around a crawl."""

import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ops.crawl.listing import SourceError

SERVER = Path(__file__).with_name("pydoc_server.py")
# The interpreter below our virtual environment: what it documents does not depend on where the environment lies.
PYTHON = getattr(sys, "_base_executable", sys.executable)
START_TIMEOUT_S = 60.0  # it takes 0.2 s on an idle core; a loaded CI machine gets its time
# Seen by every page that shows os.environ, so fixed; a seed, since pydoc prints sets in their iteration order.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": "/", "COLUMNS": "80"}


@contextmanager
def serving_pydoc() -> Iterator[tuple[str, int]]:
    """Run the server for the length of the block; gives its address.

    Raises:
        SourceError: the server did not start; says what it printed.
    """
    with tempfile.TemporaryFile() as errors:
        server = subprocess.Popen(
            [PYTHON, "-s", "-S", "-P", "-B", str(SERVER)],
            env=ENVIRONMENT,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        try:
            yield "127.0.0.1", _port_of(server, errors)
        finally:
            _stop(server)


def _port_of(server: "subprocess.Popen[bytes]", errors: IO[bytes]) -> int:
    assert server.stdout is not None
    deadline = time.monotonic() + START_TIMEOUT_S
    with selectors.DefaultSelector() as selector:
        selector.register(server.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline and server.poll() is None:
            if selector.select(timeout=1.0) and (line := server.stdout.readline().strip()):
                return int(line)
    errors.seek(0)
    said = errors.read()[-500:].decode(errors="replace").strip() or "nothing"
    raise SourceError(f"the pydoc server of {PYTHON} did not start within {START_TIMEOUT_S:.0f} s; it said: {said}")


def _stop(server: "subprocess.Popen[bytes]") -> None:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.close()  # the server leaves when its input ends
    try:
        server.wait(timeout=5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    server.stdout.close()
