"""What counts as the same device: programs compiled for another must not be fetched."""

from pathlib import Path

from infra.caches.device_kind import device_kind

INTEL = "processor : 0\nflags\t\t: fpu sse2 avx2\n"
ARM = "processor : 0\nFeatures\t: fp asimd\n"


def gpus(folder: Path, *models: str) -> Path:
    for number, model in enumerate(models):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 12\n")
    return folder


def cpu(folder: Path, text: str) -> str:
    (folder / "cpuinfo").write_text(text)
    return device_kind("cpux2", cpuinfo=folder / "cpuinfo")


def test_a_gpu_is_its_model(tmp_path: Path) -> None:
    assert device_kind("h100x8", gpus=gpus(tmp_path, "NVIDIA H200", "NVIDIA H200")) == "NVIDIA-H200", "observed, not what was asked for"


def test_without_a_driver_or_with_two_models_nothing_is_shared(tmp_path: Path) -> None:
    assert device_kind("h100x8", gpus=tmp_path / "missing") == ""
    assert device_kind("h100x8", gpus=gpus(tmp_path / "mixed", "NVIDIA H200", "NVIDIA L4")) == ""


def test_a_tpu_is_its_type_and_size() -> None:
    assert device_kind("v5p-32") == "v5p-32"


def test_a_cpu_is_the_instructions_that_it_has_in_whatever_order(tmp_path: Path) -> None:
    kind = cpu(tmp_path, INTEL)
    assert kind.startswith("cpu-")
    assert cpu(tmp_path, INTEL.replace("fpu sse2 avx2", "avx2 fpu sse2")) == kind
    assert cpu(tmp_path, INTEL.replace("avx2", "avx512f")) != kind
    assert cpu(tmp_path, ARM) not in ("", kind)
    assert cpu(tmp_path, "processor : 0\n") == ""
    assert device_kind("cpu", cpuinfo=tmp_path / "missing") == ""
