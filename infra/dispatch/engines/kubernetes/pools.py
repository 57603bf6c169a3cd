"""How a device of the catalogue is asked of a cluster's nodes: labels, extended resources, TPU shapes."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from infra.dispatch.devices import Device

# The product label of NVIDIA's GPU feature discovery; GKE's label of a TPU node pool.
USUAL_LABELS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "h100": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        "h200": {"nvidia.com/gpu.product": "NVIDIA-H200"},
        "b200": {"nvidia.com/gpu.product": "NVIDIA-B200"},
        "gb200": {"nvidia.com/gpu.product": "NVIDIA-GB200"},
        "v4": {"cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice"},
        "v5p": {"cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice"},
        "v5e": {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"},
        "v6e": {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"},
    }
)
RESOURCES: Mapping[str, str] = MappingProxyType({"gpu": "nvidia.com/gpu", "tpu": "google.com/tpu"})
TPU_TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"

# Chips -> shape, as Google's tables of v4 and v5p (tori of three dimensions) and of v5e and v6e (two) list them.
_SHAPES_3D = {
    4: "2x2x1",
    8: "2x2x2",
    16: "2x2x4",
    32: "2x4x4",
    64: "4x4x4",
    128: "4x4x8",
    256: "4x8x8",
    512: "8x8x8",
    1024: "8x8x16",
    2048: "8x16x16",
    4096: "16x16x16",
    6144: "16x16x24",
}
_SHAPES_2D = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_SHAPES = {"v4": _SHAPES_3D, "v5p": _SHAPES_3D, "v5e": _SHAPES_2D, "v6e": _SHAPES_2D}


def family_of(target: Device) -> str:
    """`h100` of `h100x64`, `v5p` of `v5p-32`, `cpu` of `cpux4`."""
    return re.sub(r"(x|-)\d+$", "", target.name)


def chips_per_host(target: Device) -> int:
    return target.chips // target.hosts


def tpu_shape(target: Device, shapes: Mapping[str, str]) -> str | None:
    """The topology of a TPU slice; `shapes` (by device name) overrides the usual one. None if there is none."""
    return shapes.get(target.name) or _SHAPES[family_of(target)].get(target.chips)
