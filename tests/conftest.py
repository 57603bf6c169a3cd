"""How the tests share their workers: whole files; all journeys together, since they share one finished lab; and one Ray cluster."""

import os
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Compile little and once: most of a tiny model's time is XLA's, which JAX reads of here, as do the processes that tests start.

    Programs are kept between tests and between runs. Whole optimisation is what `make demo` runs with, and benchmarks.
    """
    cache = config.cache
    assert cache is not None
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache.mkdir("jax"))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their parameter: archives hold the time, and both workers must find the same names."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand whole groups out. xdist's own `loadgroup` marks names in a way that pytest 9 no longer sees: every test was a group."""
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Grouped(config, log)


@pytest.hookimpl(tryfirst=True)  # before `-m` is asked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever needs a cluster is one of the faults: its engines' nodes die in it. The longest group begins first."""
    for item in items:
        if any(item.get_closest_marker(engine) for engine in ("slurm", "ray")):
            item.add_marker("faults")
    items.sort(key=lambda item: group_of(item.nodeid) != "journeys")


def group_of(nodeid: str) -> str:
    """Which tests stay on one worker with this one."""
    path = nodeid.partition("::")[0]
    if path.startswith("tests/journeys/"):
        return "journeys"
    return "ray" if path.endswith("/test_ray.py") or "[ray" in nodeid else path
