"""Files that were finished elsewhere in the same storage and become part of an artifact without being written again."""

import pytest

from infra.artifacts.manifest import FileEntry
from infra.artifacts.store import ArtifactStore, CorruptArtifactError
from infra.artifacts.writer import Writer
from tests.infra.artifacts.builders import RECIPE, begin, publish


@pytest.fixture
def store(storage: str) -> ArtifactStore:
    return ArtifactStore(storage)


def finished(out: Writer, content: bytes) -> tuple[str, FileEntry]:
    """A file in the scratch space: its URL, and what it is as `web/part.parquet`."""
    elsewhere = Writer(f"{out.scratch_url}/00000-try", scratch_url=out.scratch_url)
    with elsewhere.open("shard.parquet") as stream:
        stream.write(content)
    return f"{elsewhere.url}/shard.parquet", elsewhere.files[0].model_copy(update={"name": "web/part.parquet"})


def test_an_adopted_file_is_part_of_the_artifact_and_outlives_the_place_it_came_from(store: ArtifactStore) -> None:
    address = store.address("normalized", "web", RECIPE)
    lease, out = begin(store, address)
    out.adopt(*finished(out, b"rows"))
    artifact = publish(store, address, lease, out)
    store.sweep(address)
    store.verify(artifact)
    with artifact.open("web/part.parquet") as stream:
        assert stream.read() == b"rows"


def test_an_adopted_file_that_is_not_what_was_said_is_never_published(store: ArtifactStore) -> None:
    address = store.address("normalized", "web", RECIPE)
    lease, out = begin(store, address)
    url, entry = finished(out, b"rows")
    out.adopt(url, entry.model_copy(update={"sha256": "0" * 64}))
    with pytest.raises(CorruptArtifactError, match=r"web/part\.parquet has other content"):
        publish(store, address, lease, out)


def test_names_are_judged_as_those_of_files_that_are_written(store: ArtifactStore) -> None:
    _, out = begin(store, store.address("normalized", "web", RECIPE))
    url, entry = finished(out, b"rows")
    out.adopt(url, entry)
    with pytest.raises(ValueError, match="already written"):
        out.adopt(url, entry)
    with pytest.raises(ValueError, match="hidden"):
        out.adopt(url, entry.model_copy(update={"name": ".hidden"}))
