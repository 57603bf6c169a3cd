"""Which compiled programs this machine can run: the accelerator's model, or what its CPU can do. Observed, never assumed."""

import hashlib
import platform
from pathlib import Path

from infra.dispatch.devices import device

_NVIDIA = Path("/proc/driver/nvidia/gpus")
_CPUINFO = Path("/proc/cpuinfo")


def device_kind(target: str, *, gpus: Path = _NVIDIA, cpuinfo: Path = _CPUINFO) -> str:
    """`NVIDIA-H200`, `v5p-32`, `cpu-x86_64-5f0c3a9b`; empty where nothing could be observed, and so nothing can be shared.

    XLA compiles for a CPU with the instructions that it finds, and a program with others ends in SIGILL: so the flags
    that the kernel lists are part of the kind.

    Args:
        target: the device that the job asked for (`infra.dispatch.devices`).
    """
    kind = device(target).kind
    if kind == "gpu":
        return _gpu_model(gpus)
    return target if kind == "tpu" else _cpu(cpuinfo)


def _gpu_model(gpus: Path) -> str:
    models = {
        line.partition(":")[2].strip()
        for path in sorted(gpus.glob("*/information"))
        for line in path.read_text().splitlines()
        if line.startswith("Model")
    }
    return models.pop().replace(" ", "-") if len(models) == 1 else ""


def _cpu(cpuinfo: Path) -> str:
    try:
        flags = next(line for line in cpuinfo.read_text().splitlines() if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return ""
    ordered = " ".join(sorted(flags.partition(":")[2].split()))
    return f"cpu-{platform.machine()}-{hashlib.sha256(ordered.encode()).hexdigest()[:8]}"
