"""Archives to write to: on each storage in turn, and on a disk where storage makes no difference."""

from pathlib import Path

import pytest

from infra.archive.archive import Archive


@pytest.fixture
def archive(storage: str) -> Archive:
    return Archive(f"{storage}/archive", writer="tests")


@pytest.fixture
def here(tmp_path: Path) -> Archive:
    return Archive(str(tmp_path / "archive"))
