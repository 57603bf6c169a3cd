"""Bad input gets one clear sentence, a non-zero exit code, and publishes nothing."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.artifacts.store import ArtifactStore
from tests.journeys.lab import Lab


def fails(lab: Lab, *command: str) -> str:
    """Run a command that must fail; its output, which must not be a traceback."""
    done = lab.run(*command)
    shown = done.stdout + done.stderr
    assert done.returncode != 0, shown
    assert "Traceback" not in shown, shown
    return " ".join(shown.split())


def with_change(lab: Lab, tmp_path: Path, old: str, new: str) -> Lab:
    text = lab.profile.read_text()
    assert old in text
    changed = tmp_path / "changed.yaml"
    changed.write_text(text.replace(old, new))
    return Lab(lab.home, lab.texts, changed)


def test_an_unknown_key_in_a_profile(lab: Lab, tmp_path: Path):
    lab = with_change(lab, tmp_path, "num_bands: 16", "num_bandz: 16")
    assert "programs.minhash.num_bandz: unknown key" in fails(lab, "seaway", "plan")
    assert lab.digests() == {}


def test_a_source_whose_path_is_missing(lab: Lab, tmp_path: Path):
    lab = with_change(lab, tmp_path, "root: ${TEXTS}", f"root: {tmp_path}/nowhere")
    shown = fails(lab, "seaway", "demo", "--profile", str(lab.profile))
    assert f"{tmp_path}/nowhere" in shown
    assert not [key for key in lab.digests() if "texts" in key]


def test_a_truncated_warc_keeps_what_is_before_the_cut(lab: Lab, tmp_path: Path, finished_lab: Lab):
    (raw,) = finished_lab.home.glob("artifacts/raw/pydoc/*/attempt-*/warc/*.warc.gz")
    drop = tmp_path / "drop"
    drop.mkdir()
    whole = raw.read_bytes()
    (drop / "cut.warc.gz").write_bytes(whole[: len(whole) * 2 // 3])
    source = f"  dropped: {{kind: warc, domain: web, licence: none, root: {drop}}}\n"
    lab = with_change(lab, tmp_path, "sources:\n", f"sources:\n{source}")
    done = lab.run("dg", "launch", "--assets", "raw,extracted", "--partition", "dropped")
    assert done.returncode == 0, done.stdout + done.stderr
    stats = next(artifact.stats for asset, _, _, artifact in lab.store.artifacts() if asset == "extracted")
    assert stats["documents"] > 5
    assert stats["records"] == stats["documents"] + sum(stats["rejects"].values())
    assert any("truncated" in reason for reason in stats["rejects"]), stats


def test_a_port_in_use(lab: Lab):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} on 127.0.0.1 can't be used: Address already in use; choose another with --port" in fails(
            lab, "seaway", "ui", "--port", str(port)
        )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 KiB, which the crawl fills."""
    yield from _mounted(tmp_path / "small", "size=600k")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    yield from _mounted(tmp_path / "read-only", "ro")


def _mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    mounted = (
        os.geteuid() == 0 and not subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False).returncode
    )
    if not mounted:
        if os.environ.get("CI") == "true":
            pytest.fail("mounting a tmpfs needs root")
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(lab: Lab, tmp_path: Path, small_disk: Path):
    lab = with_change(lab, tmp_path, "root: ${HOME_OF_TEST}/artifacts", f"root: {small_disk}")
    shown = fails(lab, "seaway", "demo", "--profile", str(lab.profile))
    assert "the disk is full; free space there or choose another root" in shown
    published = list(ArtifactStore(str(small_disk)).artifacts())
    assert published, "what fitted was published"
    for _, _, _, artifact in published:
        ArtifactStore(str(small_disk)).verify(artifact)  # whole, or it would not be there


def test_a_read_only_root(lab: Lab, tmp_path: Path, read_only: Path):
    lab = with_change(lab, tmp_path, "root: ${HOME_OF_TEST}/artifacts", f"root: {read_only}")
    shown = fails(lab, "seaway", "demo", "--profile", str(lab.profile))
    assert "mounted read-only; choose a root that can be written" in shown
