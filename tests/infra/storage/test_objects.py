"""The same promises on every storage: one winner, whole objects, no cached listing."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import fsspec
import pytest

from infra.storage.errors import PermanentStorageError
from infra.storage.objects import (
    create_exclusive,
    list_files,
    list_names,
    read_chunks,
    read_or_none,
    remove_tree,
    replace,
    sha256_of,
)


@pytest.fixture
def root(storage: str) -> str:
    return storage


@pytest.mark.parametrize("writers", [2, 16, 64])
def test_of_many_racing_writers_one_wins_and_the_others_know_it(root: str, writers: int) -> None:
    url = f"{root}/race/.artifact.json"
    start = Barrier(writers)

    def write(writer: int) -> bool:
        start.wait()
        return create_exclusive(url, f"writer {writer}".encode())

    with ThreadPoolExecutor(writers) as pool:
        won = list(pool.map(write, range(writers)))
    assert won.count(True) == 1
    assert read_or_none(url) == f"writer {won.index(True)}".encode()


def test_a_created_object_is_never_replaced_by_another_create(root: str) -> None:
    assert create_exclusive(f"{root}/x", b"first")
    assert not create_exclusive(f"{root}/x", b"second")
    assert read_or_none(f"{root}/x") == b"first"


def test_a_repeated_create_recognises_its_own_bytes(root: str) -> None:
    assert create_exclusive(f"{root}/x", b"attempt 17")
    assert create_exclusive(f"{root}/x", b"attempt 17")


def test_replace_creates_and_overwrites(root: str) -> None:
    replace(f"{root}/deep/x", b"one")
    replace(f"{root}/deep/x", b"two")
    assert read_or_none(f"{root}/deep/x") == b"two"
    assert list_names(f"{root}/deep") == ("x",)


def test_nothing_reads_as_none_and_lists_as_empty(root: str) -> None:
    assert read_or_none(f"{root}/nothing") is None
    assert list_names(f"{root}/nothing") == ()
    assert list_files(f"{root}/nothing") == {}
    remove_tree(f"{root}/nothing")


def test_listings_show_what_another_client_just_wrote(root: str) -> None:
    replace(f"{root}/a/x", b"1")
    assert list_names(root) == ("a",)
    other, path = fsspec.url_to_fs(root, skip_instance_cache=True)
    other.makedirs(f"{path}/b", exist_ok=True)
    other.pipe_file(f"{path}/b/.hidden", b"22")
    assert list_names(root) == ("a", "b")
    assert list_files(root) == {"a/x": 1, "b/.hidden": 2}


def test_removing_a_tree_leaves_its_siblings(root: str) -> None:
    for name in ("tree/a", "tree/.b/c", "trees/d"):
        replace(f"{root}/{name}", b"x")
    remove_tree(f"{root}/tree")
    assert list_files(root) == {"trees/d": 1}


def test_chunks_join_to_the_object(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.storage.objects.CHUNK_BYTES", 10)
    replace(f"{root}/x", b"abcdefghijklmnopqrstuvwxyz")
    assert list(read_chunks(f"{root}/x", 26)) == [b"abcdefghij", b"klmnopqrst", b"uvwxyz"]
    # printf abcdefghijklmnopqrstuvwxyz | sha256sum
    assert sha256_of(f"{root}/x", 26) == "71c480df93d6ae2f1efad1447c66c9525e316218cf51fc8d9ed832f2daf18b73"


@pytest.mark.parametrize("storage", ["local", "memory"], indirect=True)
def test_a_reader_never_sees_a_part_of_an_object(root: str) -> None:
    whole = {bytes([letter]) * 200_000 for letter in b"abcdefgh"}
    done = Event()

    def watch() -> set[bytes | None]:
        seen: set[bytes | None] = set()
        while not done.is_set():
            seen.add(read_or_none(f"{root}/created"))
            seen.add(read_or_none(f"{root}/replaced"))
        return seen

    with ThreadPoolExecutor(2) as pool:
        watcher = pool.submit(watch)
        for data in sorted(whole) * 8:
            create_exclusive(f"{root}/created", data)
            replace(f"{root}/replaced", data)
        done.set()
        seen = watcher.result()
    assert seen <= whole | {None}
    assert list_names(root) == ("created", "replaced")


def test_a_filesystem_without_conditional_create_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermanentStorageError, match=r"DirFileSystem has no conditional create.*use a local path or s3://"):
        create_exclusive(f"dir::file://{tmp_path}/x", b"")
