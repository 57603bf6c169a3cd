"""What the model's tests share. Compiled programs are kept between tests and between runs: they are most of the time."""

import os

import jax
import pytest

from infra.artifacts.artifact import Artifact
from tests.model.corpus import corpus


def pytest_configure(config: pytest.Config) -> None:
    cache = config.cache
    assert cache is not None
    directory = str(cache.mkdir("jax"))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = directory  # for the processes that tests start
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    jax.config.update("jax_compilation_cache_dir", directory)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """The inputs of a run: a store and its mixture."""
    store, mixture = corpus(tmp_path_factory.mktemp("corpus"))
    return {"store": store, "mixture": mixture}
