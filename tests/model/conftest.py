"""What the model's tests share."""

import pytest

from infra.artifacts.artifact import Artifact
from tests.model.corpus import corpus


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """The inputs of a run: a store and its mixture."""
    store, mixture = corpus(tmp_path_factory.mktemp("corpus"))
    return {"store": store, "mixture": mixture}
