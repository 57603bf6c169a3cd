"""A real PostgreSQL server on loopback: Debian's, on a free port, in a folder of its own, ended by its own command."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

import pytest

OWNER = "postgres"  # the server refuses to run as root
# Nobody needs these databases after a power loss.
SETTINGS = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "shared_buffers=32MB", "max_connections=60")


@dataclass
class Server:
    """A running server. Databases of its own for each test cost 0.1 s each."""

    port: int
    binaries: Path
    folder: Path
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def new_database(self) -> str:
        """The URL of an empty database, without a driver: as a person writes it."""
        name = f"test_{next(self._numbers)}"
        run(str(self.binaries / "createdb"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "dagster", name)
        return f"postgresql://dagster@127.0.0.1:{self.port}/{name}"


@contextmanager
def serving() -> Iterator[Server]:
    """Start a server; skip where there is none, but not where CI=true."""
    binaries = _binaries()
    folder = Path(mkdtemp(prefix="seaway-postgres-"))
    data, control = folder / "data", (str(binaries / "pg_ctl"), "-D", str(folder / "data"), "-w")
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, OWNER)
        as_owner(str(binaries / "initdb"), "-D", str(data), "-U", "dagster", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = " ".join(f"-c {setting}" for setting in ("listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", *SETTINGS))
        as_owner(*control, "-l", str(folder / "log"), "-o", f"-p {port} {options}", "start")
        try:
            yield Server(port, binaries, folder)
        finally:
            as_owner(*control, "-m", "fast", "stop")
    finally:
        shutil.rmtree(folder)


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if found or on_path:
        return (found[-1] if found else Path(str(on_path))).parent
    if os.environ.get("CI") == "true":
        pytest.fail("no PostgreSQL server: install the Debian package postgresql")
    pytest.skip("no PostgreSQL server: install the Debian package postgresql")


def as_owner(*command: str) -> None:
    run(*(("runuser", "-u", OWNER, "--") if os.geteuid() == 0 else ()), *command)


def run(*command: str) -> None:
    """Run to the end; what it printed is in the error. Output goes to a file: the server would keep a pipe open."""
    with open(os.devnull, "rb") as nothing:
        done = subprocess.run(
            command, stdin=nothing, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False, cwd="/"
        )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}"
