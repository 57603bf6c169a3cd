"""How the tests share two workers: whole files, and all journeys together, since they share one finished lab."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(TESTS)
        item.add_marker(pytest.mark.xdist_group("journeys" if path.parts[0] == "journeys" else str(path)))
