"""Which ranks of a gang one supervisor parents, and how each is told who it is. Standard library alone."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from infra.dispatch.devices import Device, device

RANK_VARIABLES = ("SEAWAY_RANK", "SEAWAY_RANKS", "SEAWAY_LOCAL_RANK", "SEAWAY_LOCAL_RANKS")
DIRECTORY_VARIABLE = "SEAWAY_ATTEMPT_DIRECTORY"
ADDRESS_VARIABLE = "SEAWAY_HOST_ADDRESS"  # set by the engine's launcher
DEVICE_VARIABLE = "SEAWAY_DEVICE"
_GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Placement:
    """One supervisor's part of a gang.

    Attributes:
        host: which of the gang's supervisors this is.
        hosts: over how many supervisors the gang is spread.
        directory: URL of the attempt's directory.
    """

    target: Device
    host: int
    hosts: int
    directory: str

    @classmethod
    def of(cls, spec_url: str, host: int, hosts: int | None, environment: Mapping[str, str] = os.environ) -> "Placement":
        """The placement of supervisor `host`.

        What the engine was asked for is in the environment; without it, the spec is read, which takes a while.

        Raises:
            ValueError: the gang can't be spread so.
            FileNotFoundError: there is neither.
        """
        name = environment.get(DEVICE_VARIABLE) or _device_in(spec_url)
        target = device(name)
        spread = hosts or target.hosts
        if target.processes % spread or not 0 <= host < spread:
            raise ValueError(f"{target.name} has {target.processes} processes: there is no host {host} if it is spread over {spread} hosts")
        return cls(target, host, spread, spec_url.rpartition("/")[0])

    @property
    def ranks(self) -> int:
        """Of the whole gang."""
        return self.target.processes

    @property
    def local_ranks(self) -> int:
        return self.ranks // self.hosts

    @property
    def hosts_here(self) -> int:
        """How many of the target's hosts this machine stands for."""
        return self.target.hosts // self.hosts or 1

    def rank(self, local_rank: int) -> int:
        return self.host * self.local_ranks + local_rank

    def environment(self, local_rank: int, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
        """What a worker is told: its ranks, where its attempt keeps what the gang shares, and which GPU is its own."""
        numbers = (self.rank(local_rank), self.ranks, local_rank, self.local_ranks)
        told = {name: str(number) for name, number in zip(RANK_VARIABLES, numbers, strict=True)}
        told[DIRECTORY_VARIABLE] = self.directory
        if self.target.kind == "gpu" and self.local_ranks > 1:
            visible = [name for name in inherited.get(_GPUS_VARIABLE, "").split(",") if name]  # what the engine gave to this host
            told[_GPUS_VARIABLE] = visible[local_rank] if local_rank < len(visible) else str(local_rank)
        return told


def _device_in(spec_url: str) -> str:
    from infra.dispatch.job import read_spec  # 0.2 s and more

    return read_spec(spec_url).job.resources.device
