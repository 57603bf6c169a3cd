"""Journeys: the real commands on real processes, in a folder of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.lab import Lab, write_texts


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("texts") / "texts")


@pytest.fixture(scope="session")
def finished_lab(tmp_path_factory: pytest.TempPathFactory, texts: Path) -> Iterator[Lab]:
    """A lab whose whole lineage ran once, undisturbed. Tests may read it, and run commands that build nothing."""
    lab = Lab(tmp_path_factory.mktemp("undisturbed"), texts)
    done = lab.run("seaway", "demo", "--profile", str(lab.profile), timeout_s=580)  # 150 s alone, 250 s on two busy cores
    assert done.returncode == 0, done.stdout + done.stderr
    yield lab
    assert lab.jobs() == []


@pytest.fixture
def lab(tmp_path: Path, texts: Path) -> Iterator[Lab]:
    """An empty lab."""
    lab = Lab(tmp_path / "home", texts)
    lab.home.mkdir()
    yield lab
    left = lab.jobs()
    for process in left:
        process.kill()
    assert left == [], "a journey left processes behind"
