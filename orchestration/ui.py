"""`seaway ui`: Dagster's own webserver and daemon on a profile's instance, on loopback."""

import os
import socket
import sys
from importlib.resources import files

from rich.console import Console

from assets.partitions import PROFILE
from orchestration.instance import prepare_home


def serve_ui(console: Console, port: int) -> None:
    """Replace this process by `dagster dev`.

    Raises:
        OSError: the port is taken.
    """
    _refuse_taken(port)
    home = prepare_home(PROFILE)
    console.print(
        f"profile {PROFILE.name}, Dagster home {home}\nopen http://127.0.0.1:{port}/asset-groups  (Ctrl-C ends it)", soft_wrap=True
    )
    workspace = str(files("orchestration").joinpath("workspace.yaml"))
    command = [sys.executable, "-m", "dagster", "dev", "-w", workspace, "-h", "127.0.0.1", "-p", str(port)]
    os.execve(sys.executable, command, {**os.environ, "SEAWAY_PROFILE": os.environ.get("SEAWAY_PROFILE", PROFILE.name)})


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise OSError(f"port {port} on 127.0.0.1 can't be used: {error.strerror}; choose another with --port") from None
