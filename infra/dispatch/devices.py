"""The one catalogue of device targets: `cpu`, `h100x8`, `gb200x4`, `v4-2048`, `v5p-32`, ...

A name says everything that a gang needs: chips, hosts and processes per host.
"""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["cpu", "gpu", "tpu"]


@dataclass(frozen=True)
class Device:
    """What one gang runs on. `peak_flops_per_chip` is dense bfloat16, 0 for a CPU."""

    name: str
    kind: Kind
    chips: int
    hosts: int
    processes_per_host: int
    peak_flops_per_chip: float

    @property
    def processes(self) -> int:
        return self.hosts * self.processes_per_host


@dataclass(frozen=True)
class _Family:
    kind: Kind
    chips_per_host: int
    peak_flops_per_chip: float
    parts_of_a_host: tuple[int, ...]  # chips that are rented as less than a host
    cores_per_chip: int = 1  # v4 and v5p are named by TensorCores, two a chip


# Vendors' data sheets: dense bfloat16, without sparsity.
_GPUS = {
    "h100": _Family("gpu", 8, 989e12, (1, 2, 4)),
    "h200": _Family("gpu", 8, 989e12, (1, 2, 4)),
    "b200": _Family("gpu", 8, 2250e12, (1, 2, 4)),
    "gb200": _Family("gpu", 4, 2500e12, (1, 2)),  # one NVL72 tray is a host of four
}
_TPUS = {
    "v4": _Family("tpu", 4, 275e12, (), cores_per_chip=2),
    "v5p": _Family("tpu", 4, 459e12, (), cores_per_chip=2),
    "v5e": _Family("tpu", 4, 197e12, (1,)),
    "v6e": _Family("tpu", 4, 918e12, (1,)),
}
_CPU = Device("cpu", "cpu", chips=0, hosts=1, processes_per_host=1, peak_flops_per_chip=0.0)


def device(name: str) -> Device:
    """Look a device target up.

    GPUs run one process a chip (a stuck collective then names its rank), TPUs one a host.

    Raises:
        ValueError: unknown family, or a size that no whole number of hosts has.
    """
    if name == "cpu":
        return _CPU
    if match := re.fullmatch(r"([a-z0-9]+)x(\d+)", name):
        return _sized(name, _GPUS, match[1], int(match[2]))
    if match := re.fullmatch(r"([a-z0-9]+)-(\d+)", name):
        return _sized(name, _TPUS, match[1], int(match[2]))
    raise _unknown(name)


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
    return Device(name, family.kind, chips, hosts, per_host, family.peak_flops_per_chip)


def _unknown(name: str) -> ValueError:
    gpus = ", ".join(f"{family}xN" for family in _GPUS)
    tpus = ", ".join(f"{family}-N" for family in _TPUS)
    return ValueError(f"device {name!r} is unknown; choose cpu, {gpus}, {tpus}")
