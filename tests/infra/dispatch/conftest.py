from pathlib import Path

import pytest


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A folder at which a counting worker says who it is, and waits to be let through."""
    folder = tmp_path / "gate"
    folder.mkdir()
    return folder
