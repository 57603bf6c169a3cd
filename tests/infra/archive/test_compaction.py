"""Compaction: fewer files, and nothing else that anybody could notice."""

import pytest

from infra.archive.archive import Archive
from infra.archive.chain import Chain
from infra.archive.compaction import Compaction
from infra.archive.errors import (
    DuplicateKeyError,
)
from tests.infra.archive.builders import GROWN, ITEMS, NOW, add, docs_in


def test_compaction_changes_nothing_that_a_reader_sees(archive: Archive) -> None:
    for doc in range(4):
        add(archive, [10 * doc, 10 * doc + 1], table=GROWN if doc % 2 else ITEMS)
    pinned = archive.snapshot()
    columns = ["doc", "score", "_commit", "text"]
    before, later = pinned.read("items", columns), pinned.read("items", columns, after=2)
    assert archive.compact() == 1
    found = archive.snapshot()
    assert len(found.shard_urls("items")) == 1
    assert found.read("items", columns) == before == pinned.read("items", columns)
    assert found.read("items", columns, after=2) == later
    assert later.column("doc").to_pylist() == [20, 21, 30, 31]
    assert found.read("items", after=5).num_rows == 0
    with pytest.raises(DuplicateKeyError, match="doc=11"):
        add(archive, [11])
    add(archive, [50])
    assert archive.compact() == 1
    assert archive.snapshot().read("items", ["doc", "_commit"]).to_pydict() == {
        "doc": [0, 1, 10, 11, 20, 21, 30, 31, 50],
        "_commit": [1, 1, 2, 2, 3, 3, 4, 4, 6],
    }
    archive.snapshot().verify()


def test_a_compaction_whose_input_is_gone_does_nothing(archive: Archive) -> None:
    for doc in range(3):
        add(archive, [doc])
    first, second = (Archive(archive.url).compactions()[0].write() for _ in range(2))
    add(archive, [3])
    assert first.commit()
    number = archive.snapshot().number
    assert not second.commit()
    assert archive.snapshot().number == number
    assert docs_in(archive) == [0, 1, 2, 3]


def test_a_compaction_that_lost_one_of_its_inputs_does_nothing(here: Archive) -> None:
    for doc in range(3):
        add(here, [doc])
    first, *others = here.snapshot().shards("items")
    whole = Compaction(Chain(here.url), "items", (first, *others), "").write()
    assert Compaction(Chain(here.url), "items", tuple(others), "").write().commit()
    assert not whole.commit()
    assert docs_in(here) == [0, 1, 2]


def test_a_compaction_that_was_collected_before_its_commit_does_nothing(here: Archive) -> None:
    for doc in range(3):
        add(here, [doc])
    (slow,) = here.compactions()
    slow.write()
    here.collect(NOW)
    assert not slow.commit()
    assert docs_in(here) == [0, 1, 2]
    here.snapshot().verify()


def test_a_compaction_whose_inputs_were_collected_before_it_read_them_does_nothing(here: Archive) -> None:
    for doc in range(3):
        add(here, [doc])
    (late,) = Archive(here.url).compactions()
    here.compact()
    here.collect(NOW)
    assert not late.write().commit()
    assert docs_in(here) == [0, 1, 2]
