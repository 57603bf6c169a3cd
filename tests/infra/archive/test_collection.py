"""Collection removes what nobody needs, and whoever slept through it is told."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from infra.archive.archive import Archive
from infra.archive.errors import (
    ArchiveError,
    ArchiveNotFoundError,
    FencedError,
    SnapshotExpiredError,
)
from tests.infra.archive.builders import GROWN, ITEMS, NOW, add, docs_in, items


def test_an_old_shard_that_was_compacted_just_now_stays_for_the_readers_of_it(here: Archive) -> None:
    for doc in range(3):
        add(here, [doc])
    pinned = here.snapshot()
    for file in Path(here.url).rglob("*"):
        os.utime(file, (0, 0))
    here.compact()
    assert here.collect(timedelta(days=1)).files == ()
    assert pinned.read("items").num_rows == 3


def test_collection_removes_what_nobody_needs_and_a_snapshot_of_it_says_that_it_expired(archive: Archive) -> None:
    for doc in range(3):
        with archive.transaction() as transaction:
            transaction.append(ITEMS, items([doc]))
            transaction.put_blob(f"{doc}", b"kept")
    pinned = archive.snapshot()
    archive.compact()
    assert archive.collect(timedelta(days=1)).files == ()
    assert pinned.read("items").num_rows == 3
    removed = archive.collect(NOW)
    assert len(removed.files) == 12  # 3 shards of each of 2 tables, each with its keys
    assert removed.manifests >= 5
    assert archive.collect(NOW).files == ()
    with pytest.raises(SnapshotExpiredError, match="take a new snapshot"):
        pinned.read("items")
    found = Archive(archive.url).snapshot()
    assert found.read("items", ["doc"]).column("doc").to_pylist() == [0, 1, 2]
    assert found.blobs == {"0": 4, "1": 4, "2": 4}
    found.verify()
    with pytest.raises(ArchiveNotFoundError, match="commit 1 was collected"):
        archive.snapshot_at(1)
    assert add(archive, [3]) == found.number + 1


def test_what_a_killed_writer_left_is_collected_and_a_writer_that_only_slept_is_refused(archive: Archive) -> None:
    add(archive, [1])
    sleeper = Archive(archive.url).transaction()
    sleeper.append(ITEMS, items([2]))
    sleeper.prepare()
    awake = archive.transaction()
    assert archive.collect(timedelta(days=1)).files == ()
    assert [name.rpartition("/")[2] for name in archive.collect(NOW).files] == ["items-00000.keys", "items-00000.parquet"]
    with pytest.raises(FencedError, match="write its rows again"):
        sleeper.commit()
    awake.append(ITEMS, items([2]))
    awake.commit()
    assert docs_in(archive) == [1, 2]


def test_a_writer_that_slept_and_goes_on_is_refused_where_it_notices(here: Archive) -> None:
    add(here, [1])
    transaction = here.transaction()
    transaction.append(ITEMS, items([2]))
    here.collect(NOW)
    with pytest.raises(FencedError, match="write its rows again"):
        transaction.append(GROWN, items([3], table=GROWN))
    with pytest.raises(ArchiveError, match="is dropped; begin another"):
        transaction.commit()
    assert docs_in(here) == [1]


def test_a_writer_that_slept_through_a_collection_can_not_fork_history(archive: Archive) -> None:
    add(archive, [0])
    sleeper = Archive(archive.url)
    sleeper.snapshot()
    for doc in range(1, 4):
        add(archive, [doc])
    assert archive.collect(NOW).manifests >= 3
    assert add(sleeper, [9]) == 5
    assert docs_in(archive) == docs_in(sleeper) == [0, 1, 2, 3, 9]
