"""Compiled programs travel between machines; without the shared place a job compiles, and nothing else changes."""

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from infra.artifacts.store import ArtifactStore
from infra.caches import compilation
from infra.caches.compilation import build_namespace, staged
from infra.dispatch.dispatcher import Dispatcher
from infra.dispatch.engines.local import LocalBackend
from infra.dispatch.job import Resources
from infra.storage.objects import list_files, replace
from tests.infra.dispatch.builders import job_of
from tests.infra.dispatch.programs import CompileConfig, compile_once

CPU = "cpu"


def test_what_one_machine_compiled_the_next_one_finds(storage: str, tmp_path: Path) -> None:
    with staged(tmp_path / "first", storage, CPU) as directory:
        (directory / "jit_step-1-cache").write_bytes(b"program")
        (directory / "jit_step-1-atime").write_bytes(b"now")
        (directory / ".half").write_bytes(b"")
    assert list_files(storage).keys() == {f"{build_namespace(CPU)}/jit_step-1-cache"}
    with staged(tmp_path / "second", storage, CPU) as directory:
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == {"jit_step-1-cache": b"program"}


def test_programs_of_another_device_are_not_fetched(tmp_path: Path) -> None:
    with staged(tmp_path / "first", str(tmp_path / "shared"), "NVIDIA H200") as directory:
        (directory / "program").write_bytes(b"x")
    with staged(tmp_path / "second", str(tmp_path / "shared"), "TPU v5p") as directory:
        assert list(directory.iterdir()) == []


def test_a_job_that_fails_shares_what_it_compiled(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "program").write_bytes(b"x")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), staged(tmp_path / "first", str(tmp_path / "shared"), CPU) as directory:
        fail(directory)
    assert len(list_files(str(tmp_path / "shared"))) == 1


def test_a_damaged_program_is_not_fetched(tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")
    with staged(tmp_path / "first", shared, CPU) as directory:
        (directory / "program").write_bytes(b"x" * 100)
    (name,) = list_files(shared)
    replace(f"{shared}/{name}", (tmp_path / "shared" / name).read_bytes()[:-1])
    with staged(tmp_path / "second", shared, CPU) as directory:
        assert list(directory.iterdir()) == []


def test_without_the_shared_place_the_job_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING), staged(tmp_path / "here", str(tmp_path / "file" / "shared"), CPU) as directory:
        (directory / "program").write_bytes(b"x")
    assert "1 of 1 compiled programs were not shared" in caplog.text
    with staged(tmp_path / "here", None, CPU) as directory:
        assert (directory / "program").exists()


def test_the_end_of_a_job_waits_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    answer = threading.Event()
    monkeypatch.setattr(compilation, "create_exclusive", lambda *_: answer.wait(60))
    started = time.monotonic()
    with staged(tmp_path / "here", str(tmp_path / "shared"), CPU, drain_s=0.3) as directory:
        for number in range(20):
            (directory / f"program-{number}").write_bytes(b"x")
    assert time.monotonic() - started < 20
    assert "20 of 20 compiled programs were not shared" in caplog.text
    answer.set()


def test_a_build_names_versions_and_device() -> None:
    assert build_namespace("NVIDIA H200 (80 GB)") is not None
    assert str(build_namespace("NVIDIA H200")).startswith("jax-")
    assert str(build_namespace("NVIDIA H200")).endswith("_NVIDIA-H200")
    assert build_namespace("") is None


def test_naming_a_build_does_not_import_jax() -> None:
    script = (
        "import sys; from infra.caches.compilation import build_namespace; assert build_namespace('cpu'); assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_job_finds_what_a_job_on_another_host_compiled(tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")

    def found(host: str, **told: str) -> int:
        (tmp_path / host / "compiled").mkdir(parents=True)
        store = ArtifactStore(str(tmp_path / host / "store"))
        env = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / host / "compiled"), **told}
        job = job_of(store, compile_once, CompileConfig(), resources=Resources(env=env))
        artifact = Dispatcher(store, LocalBackend(tmp_path / host / "state")).run(job).artifact
        return int(artifact.manifest.stats["found"])

    assert found("first", SEAWAY_COMPILED_SHARED=shared) == 0
    assert found("second", SEAWAY_COMPILED_SHARED=shared) == 1
    assert found("alone") == 0
    (tmp_path / "file").write_text("")
    assert found("unwritable", SEAWAY_COMPILED_SHARED=str(tmp_path / "file" / "shared")) == 0, "it compiles, and does not fail"
