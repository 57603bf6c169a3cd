from collections.abc import Iterator

import pytest

from tests.infra.storage.s3_server import S3, FaultyServer, fresh_bucket, serving


@pytest.fixture(scope="package")
def s3_server() -> Iterator[tuple[FaultyServer, str]]:
    with serving() as running:
        yield running


@pytest.fixture
def s3(s3_server: tuple[FaultyServer, str]) -> S3:
    return fresh_bucket(*s3_server)
