"""Local copies of stored files: the right bytes or an error, fetched once, and never trusted blindly."""

import hashlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from infra.artifacts.store import ArtifactStore
from infra.caches import local_copy as copies
from infra.caches.local_copy import local_copy
from infra.storage.errors import TransientStorageError
from infra.storage.objects import remove_tree, replace
from tests.infra.artifacts.builders import RECIPE, begin, publish

DATA = b"tokens" * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def stored() -> Iterator[str]:
    url = f"memory://{uuid4().hex}"
    replace(f"{url}/x", DATA)
    yield f"{url}/x"
    remove_tree(url)


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_verified", {})


def test_an_artifact_in_an_object_store_can_be_memory_mapped(storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAWAY_CACHE", str(tmp_path / "cache"))
    store = ArtifactStore(storage)
    address = store.address("store", None, RECIPE)
    artifact = publish(store, address, *begin(store, address, {"tokens.npy": DATA}))
    assert artifact.local_path("tokens.npy").read_bytes() == DATA


def test_a_copy_is_fetched_once(stored: str, tmp_path: Path) -> None:
    first = local_copy(stored, len(DATA), SHA256, directory=tmp_path)
    remove_tree(stored)
    assert local_copy(stored, len(DATA), SHA256, directory=tmp_path) == first


@pytest.mark.parametrize("damage", [DATA[:-1], b"x" + DATA[1:], b""])
def test_a_copy_that_rotted_is_fetched_again(stored: str, tmp_path: Path, damage: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = local_copy(stored, len(DATA), SHA256, directory=tmp_path)
    path.write_bytes(damage)
    monkeypatch.setattr(copies, "_verified", {})
    assert local_copy(stored, len(DATA), SHA256, directory=tmp_path).read_bytes() == DATA


def test_bytes_that_are_not_those_of_the_manifest_are_refused(stored: str, tmp_path: Path) -> None:
    replace(stored, b"y" * len(DATA))
    with pytest.raises(TransientStorageError, match="its bytes are not those of its manifest"):
        local_copy(stored, len(DATA), SHA256, directory=tmp_path)
    assert list((tmp_path / "files").iterdir()) == []


def test_many_readers_at_once_get_the_same_copy(stored: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        paths = set(pool.map(lambda _: local_copy(stored, len(DATA), SHA256, directory=tmp_path), range(16)))
    assert len(paths) == 1
    assert [path.name for path in (tmp_path / "files").iterdir()] == [SHA256]


def test_a_copy_that_is_used_stays_and_one_that_is_not_goes(stored: str, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    used = local_copy(stored, len(DATA), SHA256, directory=tmp_path)
    unused = folder / ("0" * 64)
    unused.write_bytes(b"x")
    for path in (used, unused):
        os.utime(path, (time.time() - 31 * 24 * 3600,) * 2)
    local_copy(stored, len(DATA), SHA256, directory=tmp_path)
    replace(stored, b"another")
    local_copy(stored, 7, hashlib.sha256(b"another").hexdigest(), directory=tmp_path)
    assert used.exists()
    assert not unused.exists()
