"""Where the storage protocols are tried: a disk, memory, moto (an emulator that can be told to misbehave) and SeaweedFS (a real server)."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from infra.storage.objects import remove_tree
from tests.infra.storage.s3_server import S3, FaultyServer, fresh_bucket, serving
from tests.infra.storage.seaweed import Seaweed, pointed_at, seaweed

STORAGES = ["local", "memory", pytest.param("moto", marks=pytest.mark.s3), pytest.param("seaweed", marks=pytest.mark.s3)]


@pytest.fixture(scope="package")
def s3_server() -> Iterator[tuple[FaultyServer, str]]:
    with serving() as running:
        yield running


@pytest.fixture
def s3(s3_server: tuple[FaultyServer, str]) -> S3:
    return fresh_bucket(*s3_server)


@pytest.fixture(scope="session")
def seaweed_server() -> Iterator[Seaweed]:
    with seaweed() as running:
        yield running


@pytest.fixture
def seaweed_root(seaweed_server: Seaweed) -> Iterator[str]:
    """A prefix of its own on SeaweedFS, to which this process's S3 clients point."""
    with pointed_at(seaweed_server.environment):
        yield seaweed_server.fresh_root()


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty root on each storage in turn."""
    if request.param == "local":
        yield str(tmp_path / "with [brackets] and spaces")
    elif request.param == "moto":
        yield request.getfixturevalue("s3").root
    elif request.param == "seaweed":
        yield request.getfixturevalue("seaweed_root")
    else:
        url = f"memory://{uuid4().hex}"
        yield url
        remove_tree(url)
