"""How the ranks of one attempt find each other: rank 0 publishes where it will listen, the others read it.

The name lies in the attempt's own directory, so nobody can meet an earlier attempt's coordinator, whatever that left
behind. Rank 0 picks a fresh port each time and publishes it before it blocks. Whatever goes wrong is `RendezvousFailed`,
an infrastructure loss: between picking a port and listening on it lies a moment in which a stranger may take it.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infra.storage.errors import StorageError
from infra.storage.objects import create_exclusive, read_or_none
from infra.supervise.placement import ADDRESS_VARIABLE, DIRECTORY_VARIABLE, RANK_VARIABLES

ENDPOINT_NAME = "coordinator"
PATIENCE_S = 300.0  # a host may boot, pull an image and import for minutes after the first one
FIRST_WAIT_S = 0.05
MAX_WAIT_S = 5.0  # thousands of ranks ask one small object; the object store needn't answer each of them every second
_TRIES = 100

Connect = Callable[[str, int, int], None]


class RendezvousFailed(RuntimeError):  # noqa: N818
    """The gang did not come together. Another attempt may."""


@dataclass(frozen=True)
class Membership:
    """Which rank of which gang this process is.

    Attributes:
        rank, size: in the whole gang.
        local_rank, local_size: among the ranks that its host's supervisor parents.
        directory: URL of the attempt's directory.
        address: by which the other hosts reach this one.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    directory: str
    address: str = "127.0.0.1"

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> "Membership":
        """What the supervisor told; a gang of one where there is none."""
        alone = zip(RANK_VARIABLES, ("0", "1", "0", "1"), strict=True)
        rank, size, local_rank, local_size = (int(environment.get(name, default)) for name, default in alone)
        directory, address = environment.get(DIRECTORY_VARIABLE, ""), environment.get(ADDRESS_VARIABLE, "127.0.0.1")
        return cls(rank, size, local_rank, local_size, directory, address)

    def join(self, connect: Connect, *, patience_s: float = PATIENCE_S) -> None:
        """Come together: call `connect(coordinator's host:port, size, rank)`, which may block until all are there.

        A gang of one has nobody to meet: `connect` is not called.

        Raises:
            RendezvousFailed: no coordinator within `patience_s`, or `connect` raised.
        """
        if self.size == 1:
            return
        if self.rank == 0:
            self._lead(connect)
        else:
            self._connect(connect, self._found(patience_s))

    def _lead(self, connect: Connect) -> None:
        port, held = hold_fresh_port()
        _HELD.append(held)
        address = f"{self.address}:{port}"
        try:
            first = create_exclusive(self._endpoint, address.encode())
        except StorageError as error:
            raise RendezvousFailed(f"rank 0 could not publish where it listens: {error}") from error
        if not first:
            raise RendezvousFailed(
                f"{self._endpoint} is there already: rank 0 of one attempt was started twice; an engine must not restart it"
            )
        self._connect(connect, address)

    def _found(self, patience_s: float) -> str:
        """Ask for the coordinator's address with growing pauses."""
        deadline, wait_s, trouble = time.monotonic() + patience_s, FIRST_WAIT_S, ""
        while True:
            try:
                stored = read_or_none(self._endpoint)
            except StorageError as error:
                stored, trouble = None, f" ({error})"
            if stored is not None:
                return stored.decode()
            if (left_s := deadline - time.monotonic()) <= 0:
                raise RendezvousFailed(f"rank {self.rank} found no coordinator at {self._endpoint} within {patience_s:g} s{trouble}")
            time.sleep(min(wait_s, left_s))
            wait_s = min(MAX_WAIT_S, wait_s * 1.5)

    def _connect(self, connect: Connect, address: str) -> None:
        try:
            connect(address, self.size, self.rank)
        except Exception as error:
            raise RendezvousFailed(
                f"rank {self.rank} of {self.size} could not join at {address}: {type(error).__name__}: {error}"
            ) from error

    @property
    def _endpoint(self) -> str:
        return f"{self.directory}/{ENDPOINT_NAME}"


_HELD: list[socket.socket] = []  # for the life of this process


def hold_fresh_port() -> tuple[int, socket.socket]:
    """A free TCP port that no other gang of this machine chooses while the socket lives.

    The lock is a UDP socket of the same number. Ports belong to a network namespace and so does this lock: it also holds
    between containers that share their host's network and not its files. The kernel lets go of it however a process dies.
    A listening port alone would not do: gRPC shares ports among listeners (SO_REUSEPORT), and nobody listens yet.

    Raises:
        RendezvousFailed: there is none.
    """
    for _ in range(_TRIES):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
            held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                held.bind(("", port))
            except OSError:  # another gang's, or a stranger's
                held.close()
                continue
        return port, held
    raise RendezvousFailed(f"no free port in {_TRIES} tries; is the machine out of ports?")
