"""The one catalogue of device targets: `cpu`, `cpux4`, `h100x8`, `gb200x48`, `v4-2048`, `v5p-32`, ...

A name says everything that a gang needs: chips, hosts, processes per host, and how the hosts must lie to each other.
Standard library alone: a supervisor reads it before it has imported anything else.
"""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["cpu", "gpu", "tpu"]
Domain = Literal["rack", "slice"]


@dataclass(frozen=True)
class Topology:
    """How the hosts of a gang must lie to each other: `slices` equal groups, each within one `domain`.

    Attributes:
        domain: "rack" is one NVLink domain, "slice" one TPU slice; None where any hosts will do.
    """

    slices: int
    hosts_per_slice: int
    domain: Domain | None


@dataclass(frozen=True)
class Device:
    """What one gang runs on. `peak_flops_per_chip` is dense bfloat16, 0 for a CPU."""

    name: str
    kind: Kind
    chips: int
    hosts: int
    processes_per_host: int
    peak_flops_per_chip: float
    topology: Topology

    @property
    def processes(self) -> int:
        return self.hosts * self.processes_per_host


@dataclass(frozen=True)
class _Rack:
    """Hosts that share one NVLink domain. A spare or two a rack stay free for repairs, so fewer can be asked for than there are."""

    trays: int
    schedulable: int

    def racks_for(self, hosts: int) -> int:
        return -(-hosts // self.schedulable)

    def can_hold(self, hosts: int) -> bool:
        racks = self.racks_for(hosts)
        return racks == 1 or (hosts % racks == 0 and hosts // racks > self.trays / 2)


@dataclass(frozen=True)
class _Family:
    kind: Kind
    chips_per_host: int
    peak_flops_per_chip: float
    parts_of_a_host: tuple[int, ...]  # chips that are rented as less than a host
    cores_per_chip: int = 1  # v4 and v5p are named by TensorCores, two a chip
    rack: _Rack | None = None


# Vendors' data sheets: dense bfloat16, without sparsity.
_GPUS = {
    "h100": _Family("gpu", 8, 989e12, (1, 2, 4)),
    "h200": _Family("gpu", 8, 989e12, (1, 2, 4)),
    "b200": _Family("gpu", 8, 2250e12, (1, 2, 4)),
    "gb200": _Family("gpu", 4, 2500e12, (1, 2), rack=_Rack(trays=18, schedulable=16)),  # NVL72: one tray is a host of four
}
_TPUS = {
    "v4": _Family("tpu", 4, 275e12, (), cores_per_chip=2),
    "v5p": _Family("tpu", 4, 459e12, (), cores_per_chip=2),
    "v5e": _Family("tpu", 4, 197e12, (1,)),
    "v6e": _Family("tpu", 4, 918e12, (1,)),
}


def device(name: str) -> Device:
    """Look a device target up.

    GPUs run one process a chip (a stuck collective then names its rank), TPUs and CPUs one a host.

    Raises:
        ValueError: unknown family, a size that no whole number of hosts has, or one that no racks can hold.
    """
    if name == "cpu":
        return _cpus(name, 1)
    if match := re.fullmatch(r"cpux([1-9]\d*)", name):
        return _cpus(name, int(match[1]))
    if match := re.fullmatch(r"([a-z0-9]+)x(\d+)", name):
        return _sized(name, _GPUS, match[1], int(match[2]))
    if match := re.fullmatch(r"([a-z0-9]+)-(\d+)", name):
        return _sized(name, _TPUS, match[1], int(match[2]))
    raise _unknown(name)


def _cpus(name: str, hosts: int) -> Device:
    return Device(name, "cpu", 0, hosts, 1, 0.0, Topology(1, hosts, None))


def _sized(name: str, families: dict[str, _Family], family_name: str, size: int) -> Device:
    family = families.get(family_name)
    if family is None:
        raise _unknown(name)
    chips, rest = divmod(size, family.cores_per_chip)
    if rest or chips < 1 or (chips % family.chips_per_host and chips not in family.parts_of_a_host):
        raise ValueError(
            f"device {name!r}: {size} doesn't fill whole hosts; a {family_name} host has {family.chips_per_host * family.cores_per_chip}"
        )
    hosts = -(-chips // family.chips_per_host)
    per_host = chips // hosts if family.kind == "gpu" else 1
    return Device(name, family.kind, chips, hosts, per_host, family.peak_flops_per_chip, _topology(name, family, hosts))


def _topology(name: str, family: _Family, hosts: int) -> Topology:
    if family.rack is not None:
        return _in_racks(name, family.rack, family.chips_per_host, hosts)
    return Topology(1, hosts, "slice" if family.kind == "tpu" else None)


def _in_racks(name: str, rack: _Rack, chips_per_host: int, hosts: int) -> Topology:
    """One rack if it fits; else the fewest racks, each with an equal slice of more than half its trays.

    More than half, so that no two slices meet in one rack; the fewest, so that the rest of a rack is not left to nobody.
    """
    racks = rack.racks_for(hosts)
    if not rack.can_hold(hosts):
        raise ValueError(
            f"device {name!r}: {hosts} hosts can't be placed; up to {rack.schedulable} lie in one NVLink domain, more must split into "
            f"{racks} equal slices of more than {rack.trays // 2} hosts each; choose {_neighbours(name, rack, chips_per_host, hosts)}"
        )
    return Topology(racks, hosts // racks, "rack")


def _neighbours(name: str, rack: _Rack, chips_per_host: int, hosts: int) -> str:
    """The next smaller and the next larger size that can be placed."""
    below = next(count for count in range(hosts, 0, -1) if rack.can_hold(count))
    above = next(count for count in range(hosts, hosts + 2 * rack.schedulable) if rack.can_hold(count))
    family = name.rpartition("x")[0]
    return f"{family}x{below * chips_per_host} ({below} hosts) or {family}x{above * chips_per_host} ({above} hosts)"


def _unknown(name: str) -> ValueError:
    gpus = ", ".join(f"{family}xN" for family in _GPUS)
    tpus = ", ".join(f"{family}-N" for family in _TPUS)
    return ValueError(f"device {name!r} is unknown; choose cpu, cpuxN, {gpus}, {tpus}")
