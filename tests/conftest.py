"""How the tests share two workers: whole files; all journeys together, since they share one finished lab; and one Ray cluster."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their parameter: archives hold the time, and both workers must find the same names."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups: after it, every test would be a group of its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    path = item.path.relative_to(TESTS)
    if path.parts[0] == "journeys":
        return "journeys"
    return "ray" if item.get_closest_marker("ray") else str(path)
